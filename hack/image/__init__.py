"""The image of the service, built without a container engine and without an image registry.

`make image` makes two bases from Debian packages (mmdebstrap), builds the Dockerfile on them (buildah, as root) and
writes an OCI archive. The base that the image runs on has Python and no shell, no package manager, no pip.
"""
