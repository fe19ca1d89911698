//! Who did something: a role, and a name where the host gives one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, quoted, text_serde};
use crate::base::{Error, Result};

/// Who did it: a role, and a name where the host gives one. Text of the form `user`, `user:alice`, `agent:coder`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor {
    role: Role,
    name: Option<Box<str>>,
}

/// The kind of an [`Actor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// A person, or a program on a person's behalf.
    User,
    /// The agent.
    Agent,
    /// The library or the host.
    System,
}

impl Actor {
    /// A person without a name.
    pub const USER: Self = Self { role: Role::User, name: None };
    /// The agent.
    pub const AGENT: Self = Self { role: Role::Agent, name: None };
    /// The library or the host.
    pub const SYSTEM: Self = Self { role: Role::System, name: None };

    /// The most bytes that a name may have.
    pub const MAX_NAME_BYTES: usize = 256;

    /// This role, by name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the name is empty, longer than 256 bytes or holds a control character.
    pub fn named(role: Role, name: &str) -> Result<Self> {
        check_text("actor name", name, Self::MAX_NAME_BYTES)?;
        Ok(Self { role, name: Some(name.into()) })
    }

    /// The role.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// This role, without a name.
    pub const fn without_name(&self) -> Self {
        Self { role: self.role, name: None }
    }

    /// The name, where one was given.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::System => "system",
        })
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}:{name}", self.role),
            None => self.role.fmt(f),
        }
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Actor({self})")
    }
}

impl FromStr for Actor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (role, name) = match text.split_once(':') {
            Some((role, name)) => (role, Some(name)),
            None => (text, None),
        };
        let role = match role {
            "user" => Role::User,
            "agent" => Role::Agent,
            "system" => Role::System,
            _ => {
                return Err(Error::invalid(format!("actor {} is none of user, agent, system", quoted(text))));
            }
        };
        match name {
            Some(name) => Self::named(role, name),
            None => Ok(Self { role, name: None }),
        }
    }
}

text_serde!(Actor);
