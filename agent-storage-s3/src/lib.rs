//! Agent workspaces, sessions and device bindings in any object store with conditional writes.
