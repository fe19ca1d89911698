//! Access to the bucket: the client, requests for objects, uploads, passes over keys, work in the background.

pub(crate) mod background;
pub(crate) mod busy;
pub(crate) mod client;
pub(crate) mod object;
pub(crate) mod pass;
pub(crate) mod requests;
pub(crate) mod upload;
