//! What is made of sessions for others: the model's context, documents that leave and come back, configuration, addresses.

mod archives;
mod blobs;
mod configuration;
mod context;
mod decoders;
mod forged;
mod manifest;
mod pieces;
mod registry;
