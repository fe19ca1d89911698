//! The kinds of requests.

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// GET of an object or a part of it.
    Get,
    /// HEAD
    Head,
    /// PUT without a condition.
    Put,
    /// PUT with `If-None-Match: *`.
    Create,
    /// PUT with `If-Match`.
    Update,
    /// DELETE, of one object or several.
    Delete,
    /// A page of LIST.
    List,
    /// What the simulator does not know; it answers 405.
    Unknown,
}

impl Op {
    /// Returns `true` if the request changes stored objects.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Put | Self::Create | Self::Update | Self::Delete)
    }

    /// Returns `true` if the request is a PUT with a precondition.
    pub const fn is_conditional(self) -> bool {
        matches!(self, Self::Create | Self::Update)
    }
}
