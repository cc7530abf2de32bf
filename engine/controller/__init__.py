"""The leader's control loop: reconcile and schedule the gangs, execute the actions, report, clean up orphans."""
