//! The loop of a run: begins it, asks the model, makes the calls, commits each step.

pub(crate) mod answer_limits;
pub(crate) mod ask;
pub(crate) mod begin;
pub(crate) mod calls;
pub(crate) mod children;
pub(crate) mod compact;
pub(crate) mod drive;
pub(crate) mod enqueue;
pub(crate) mod items;
pub(crate) mod parts;
pub(crate) mod session_ref;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod takeover;
