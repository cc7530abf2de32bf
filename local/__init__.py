"""A real Kubernetes control plane on this machine, without containers: what the demo and the cluster tests run on.

Here belong: building its programs (programs.py, modules.py, go.mod; releases.py and kubernetes/ for other versions of
Kubernetes), one instance and the process that owns it (controlplane.py, supervisor.py and what they are made of),
simulated kubelets and nodes (kubelets.py, stages/, nodes.py), and the command line `python -m local`. What Topogate
does on it (installing the manifests, starting replicas, the demo) rests on these; nothing in `engine`, `certs` or
`webhook` imports anything from here.
"""
