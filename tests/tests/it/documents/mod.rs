//! Documents made of sessions: the model's context, exports that are imported again, configuration, addresses.

mod archives;
mod blobs;
mod configuration;
mod context;
mod decoders;
mod forged;
mod manifest;
mod pieces;
mod registry;
