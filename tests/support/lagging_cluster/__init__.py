"""A cluster in memory whose replicas see everything late: the real controller and executor over a model of the API.

`tests.support.leader` lets a leader write into its own stores, so that it always sees what it did. Here the truth is
one place (`api`), and each replica (`replica`) has caches that watches fill: each collection for itself, late, and at
times twice. Writes fail, conflict, or happen without an answer. Kubernetes (`controllers`), `users` and `hosts` act on
the truth, through the real webhook (`webhook`) of some replica. `truth` says what holds after every write, `rest` what
holds when nothing happens any more, and `life` draws a life from a seed.

What belongs here is only what those lives need: one namespace, nodes with GPUs, and a few kinds of workloads, each with
a class (`kinds`) that says what its objects mean and what its controller does. No sockets, no threads, no sleep.
"""
