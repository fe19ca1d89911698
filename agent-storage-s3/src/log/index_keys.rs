//! Index of the sessions of a tenant: empty objects, whose names give the list, the position and the commit of a
//! session.
//!
//! The name of a key ends with the slot of the commit that brings it into force. A key is put before that commit, and
//! the header of each commit names the keys that are in force after it. So a key in force always exists, and whether
//! one may be deleted is known without a clock: it is not in force any more, and never will be, if a commit in its slot
//! or a later one does not name it.

use std::fmt;
use std::str::FromStr;

use agent_core::model::INACTIVE_AFTER_LABEL;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_core::{OwnerId, ParseError, SessionId, text_serde};

use crate::layout::fields::{IndexedField, VALUES};
use crate::layout::keys::{Keys, MINUTE_MAX, Minute, Slot, hash, last};
use crate::medium::index_pages::Folder;

/// Scope of the keys of sessions that are due or run.
const WORK: &str = "work";
/// List, without the class, of the sessions that have a time of inactivity of their own.
const OWN_TIMES: &str = "own";
/// Folder of the lists by owner, below that of the index.
const OWNERS: &str = "o/";
const NO_KEY: &str = "no key of an index";

/// Key of a session in one list. Headers name it as `<scope>/<minute>.<slot>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexKey {
    /// List: folder below that of the index, or the work of all tenants.
    scope: String,
    minute: Minute,
    /// Slot of the commit that brings the key into force.
    pub(crate) slot: Slot,
}

impl fmt::Display for IndexKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}", self.scope, self.minute.0, self.slot.0)
    }
}

impl FromStr for IndexKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (scope, place) = text.rsplit_once('/').ok_or(NO_KEY)?;
        let (minute, slot) = place.split_once('.').ok_or(NO_KEY)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| NO_KEY);
        let minute = Minute(number(minute)?);
        if scope.is_empty() || minute.0 > MINUTE_MAX {
            return Err(NO_KEY);
        }
        Ok(Self { scope: scope.to_owned(), minute, slot: Slot(number(slot)?) })
    }
}

text_serde!(IndexKey);

impl IndexKey {
    /// Returns whether the key says that a session is due or runs.
    pub(crate) fn is_work(&self) -> bool {
        self.scope == WORK
    }

    /// Returns whether the key is in a list that a label decides on, or another field that people write.
    pub(crate) fn is_of_value(&self) -> bool {
        self.scope.starts_with(VALUES) || self.scope.split('/').next() == Some(OWN_TIMES)
    }

    /// Returns the key in `slot` of the same session in the list of another owner; `None` unless this is in the list of one.
    pub(crate) fn of_owner(&self, owner: &OwnerId, slot: Slot) -> Option<Self> {
        let class = self.scope.strip_prefix(OWNERS)?.split_once('/')?.1;
        let scope = format!("{}/{class}", owner_scope(owner));
        Some(if scope == self.scope { self.clone() } else { Self { scope, minute: self.minute, slot } })
    }

    /// Returns the name of the key in the bucket.
    pub(crate) fn name(&self, keys: &Keys, session: SessionId) -> String {
        let (folder, minute) = match self.scope.as_str() {
            WORK => (keys.work(self.minute), String::new()),
            scope => (keys.index(scope), format!("{}/", self.minute.inverted())),
        };
        format!("{folder}{minute}{session}.{}", self.slot.name())
    }
}

/// Returns the session and the slot that the name of a key says.
pub(crate) fn parse_name(name: &str) -> Option<(SessionId, Slot)> {
    let (session, slot) = last(name).split_once('.')?;
    let session: Result<SessionId, ParseError> = session.parse();
    Some((session.ok()?, Slot::parse(slot)?))
}

/// Returns the class of a session: those that lists show by default, and the hidden ones.
fn class(state: SessionState) -> &'static str {
    if state.is_hidden() { "z" } else { "a" }
}

/// Returns whether sessions in this state are in a list of their own, since there are few of them for long.
fn is_rare(state: SessionState) -> bool {
    matches!(state, SessionState::Failed | SessionState::Suspended | SessionState::Terminated)
}

/// Returns the list, without the class, of an owner's sessions. Keys hold no text.
fn owner_scope(owner: &OwnerId) -> String {
    format!("{OWNERS}{}", &hash(owner.as_str())[..32])
}

/// Returns the lists that a session belongs to after a commit, each with the minute of its key there.
fn wanted(record: &SessionRecord, fields: &[IndexedField]) -> Vec<(String, Minute)> {
    let (state, active) = (record.status.state, Minute::of(record.last_active_at));
    let class = class(state);
    let mut wanted =
        vec![(format!("t/{class}"), active), (format!("w/{}/{class}", record.workspace), active)];
    if let Some(owner) = &record.owner {
        wanted.push((format!("{}/{class}", owner_scope(owner)), active));
    }
    if is_rare(state) {
        wanted.push((format!("f/{state}"), active));
    }
    let scopes = fields.iter().filter_map(|field| field.scope(record));
    wanted.extend(scopes.map(|scope| (format!("{scope}/{class}"), active)));
    if record.attributes.labels.contains_key(INACTIVE_AFTER_LABEL) {
        wanted.push((format!("{OWN_TIMES}/{class}"), active));
    }
    let due =
        if state.may_hold_lease() { Some(Minute::AT_ONCE) } else { record.next_due_at().map(Minute::of) };
    wanted.extend(due.map(|due| (WORK.to_owned(), due)));
    wanted
}

/// Returns the keys that are in force after a commit in `slot`, if those of the commit before are `before`. The new
/// ones name that slot.
pub(crate) fn needed(
    record: &SessionRecord,
    fields: &[IndexedField],
    before: &[IndexKey],
    slot: Slot,
) -> Vec<IndexKey> {
    let key = |(scope, minute): (String, Minute)| {
        let fits = |key: &&IndexKey| key.scope == scope && key.minute.stays_for(minute);
        before.iter().find(fits).cloned().unwrap_or(IndexKey { scope, minute, slot })
    };
    wanted(record, fields).into_iter().map(key).collect()
}

/// List of the index, or several that are read like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// Folders of keys with inverted minutes.
    Recent(Vec<Folder>),
    /// Sessions that run.
    Running,
    /// Sessions that are due by this minute.
    Due(Minute),
}

impl Lists {
    /// Returns the lists that contain all sessions of a query without a parent: those of the owner, else of the first
    /// indexed field that the query names, else of the workspace.
    pub(crate) fn of(query: &SessionQuery, fields: &[IndexedField], keys: &Keys) -> Self {
        let (states, all) =
            (&query.states, |is: fn(SessionState) -> bool| query.states.iter().all(|state| is(*state)));
        if let Some(until) = query.due {
            return Self::Due(Minute::of(until));
        }
        if !states.is_empty() && all(SessionState::may_hold_lease) {
            return Self::Running;
        }
        let of_field = || fields.iter().find_map(|field| field.queried(query));
        let queried = query.owner.as_ref().map(owner_scope).or_else(of_field);
        let is_whole = query.workspace.is_none() && queried.is_none();
        let classes = ["a", "z"].into_iter().filter(|shown| match states.is_empty() {
            true => *shown == "a",
            false => states.iter().any(|state| class(*state) == *shown),
        });
        let mut scopes: Vec<String> = if !states.is_empty() && is_whole && all(is_rare) {
            states.iter().map(|state| format!("f/{state}")).collect()
        } else {
            let of_workspace = || query.workspace.map(|workspace| format!("w/{workspace}"));
            let folder = queried.or_else(of_workspace).unwrap_or_else(|| "t".to_owned());
            classes.clone().map(|class| format!("{folder}/{class}")).collect()
        };
        scopes.sort();
        scopes.dedup();
        let whole = |scope: &String| Folder::whole(keys.index(scope));
        let Some(until) = query.inactive_since else {
            return Self::Recent(scopes.iter().map(whole).collect());
        };
        // A key lags behind the last activity, and never is ahead of it. Those with a time of their own come first: if a
        // session is in both lists, its place there counts.
        let own = classes.map(|class| Folder::whole(keys.index(&format!("{OWN_TIMES}/{class}"))));
        let inactive = scopes.iter().map(|scope| Folder::until(keys.index(scope), Minute::of(until)));
        Self::Recent(own.chain(inactive).collect())
    }
}
