"""The files of a release: wheel, image, manifests, bill of materials, changelog section, checksums.

`make release VERSION=x.y.z` writes them to dist/release. Equal sources make equal bytes; nothing is published.
"""
