//! Access to the bucket: the client, requests for objects, uploads, pages of the index, work in the background, former versions.

pub(crate) mod background;
pub(crate) mod busy;
pub(crate) mod client;
pub(crate) mod index_pages;
pub(crate) mod object;
pub(crate) mod requests;
pub(crate) mod upload;
pub(crate) mod versions;
