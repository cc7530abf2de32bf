"""What admission does to Pods and workloads: mutate (suspend, gate, bind, translate) and validate."""
