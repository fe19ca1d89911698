//! Storages of owners within a tenant: what each sees, and what it is refused.
