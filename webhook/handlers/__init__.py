"""The answers to reviews of Pods, workloads and the policy: mutate (suspend, gate, bind, translate) and validate."""
