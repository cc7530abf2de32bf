"""The leader's control loop: reconcile each gang to one action, execute it, report it, clean up orphans."""
