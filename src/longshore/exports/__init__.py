"""Exports of stored files: manifests, checksum lists, bags, crates, link trees. All exports stream."""
