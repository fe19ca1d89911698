//! Tables of the file: how a connection is opened, what is checked before it is used, and the schema.

mod connect;
mod log;
mod open;
mod tables;

pub(crate) use crate::schema::connect::{attach, connect, reader};
pub(crate) use crate::schema::open::{open, writer};
pub(crate) use crate::schema::tables::{VERSION, check_again, foreign};
