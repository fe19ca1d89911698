//! Tables of the file: how a connection is opened, what is checked before it is used, and the schema.

mod connect;
mod log;
mod open;
mod tables;

pub(crate) use crate::schema::connect::{attach, connect, reader, still_uri};
pub(crate) use crate::schema::open::{open, writer};
pub(crate) use crate::schema::tables::{APPLICATION_ID, VERSION, check_again, create, foreign};
