"""GPUs and other devices: what pods ask of them, what hosts have of them, which ones a pod gets.

Pure: values in, values out; no I/O, no clock, no Kubernetes objects. Amounts of devices are whole numbers: percent of
one device (100 is one), bytes, pieces. The rules: docs/reference/gpu-cases.md.

Not here: watching Device objects (`engine.cluster`), patches and reviews (`webhook`), placing gangs (`engine.planner`).
"""
