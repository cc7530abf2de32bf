"""One gang, read from its own objects: owner, key, request, members, slots and repair. Pure."""
