//! Erasure of what one person has in a tenant.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_core::model::Origin;
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{
    ErasableKeys, ErasableRow, NeededBy, PAGE_MAX, Page, Purge, SessionQuery, WorkspaceQuery,
    needed_by_forks, pages,
};
use agent_core::{Error, ErrorKind, OwnerId, Result, SessionId, SessionStore, Storage, TenantId};
use futures::TryStreamExt;

use crate::WorkspaceManager;
use crate::erasure::Subject;
use crate::erasure::plan::{Objects, Plan, as_owner, pseudonym};
use crate::erasure::receipt::KeptSession;
use crate::retention::has_events;

/// Erasure of a person, and the stores of the tenant.
pub(super) struct Person<'e> {
    pub(super) subject: &'e Subject,
    pub(super) tenant: &'e TenantId,
    pub(super) storage: Storage,
    /// Sessions as they are stored, which tell whose each is also if its key is lost.
    pub(super) stored: Arc<dyn SessionStore>,
    pub(super) keys: Option<&'e dyn ErasableKeys>,
}

/// Finds what a person or a tenant has, and the sessions that live. `stored` has the sessions as they are stored.
pub(super) async fn find(
    storage: &Storage,
    stored: &dyn SessionStore,
    subject: &Subject,
) -> Result<(Objects, BTreeSet<SessionId>)> {
    let mut found = Finding { storage, stored, objects: Objects::default(), living: BTreeSet::new() };
    let all = SessionQuery::new().with_hidden().with_limit(PAGE_MAX);
    match subject {
        Subject::Owner(owner) => {
            found.sessions(all.with_owner(owner.clone())).await?;
            found.workspaces(owner).await?;
        }
        Subject::Creator(creator) => {
            let mut parents = found.sessions(all.with_creator(creator.clone())).await?;
            // What a helper of the person's session was given is of the person, whoever made it.
            while let Some(parent) = parents.pop() {
                let query = SessionQuery::new().with_hidden().with_limit(PAGE_MAX).with_parent(parent.id);
                parents.extend(found.children(query, &parent).await?);
            }
        }
        Subject::Tenant => drop(found.sessions(all).await?),
    }
    Ok((found.objects, found.living))
}

/// Returns the error of an erasure of nothing.
pub(super) fn nothing(subject: &Subject, tenant: &TenantId) -> Error {
    Error::not_found(format!("{subject} has nothing in tenant {tenant}; check the name"))
}

struct Finding<'s> {
    storage: &'s Storage,
    stored: &'s dyn SessionStore,
    objects: Objects,
    living: BTreeSet<SessionId>,
}

impl Finding<'_> {
    /// Adds the sessions of a query. Returns those that were not there.
    async fn sessions(&mut self, query: SessionQuery) -> Result<Vec<SessionSummary>> {
        self.add(query, |_| true).await
    }

    async fn children(&mut self, query: SessionQuery, of: &SessionSummary) -> Result<Vec<SessionSummary>> {
        let is_child =
            |it: &SessionSummary| matches!(it.origin, Origin::Child { .. }) && it.owner == of.owner;
        self.add(query, is_child).await
    }

    async fn add(
        &mut self,
        query: SessionQuery,
        is_wanted: impl Fn(&SessionSummary) -> bool,
    ) -> Result<Vec<SessionSummary>> {
        let mut new = Vec::new();
        let mut pages = pages(query, |query| self.stored.list(query));
        while let Some(page) = pages.try_next().await? {
            let page: Page<SessionSummary> = page;
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!(
                    "nothing more is erased, since it is not known whose this is: {damage}; erase or repair it by itself, then \
                     erase again"
                )));
            }
            for session in page.items.into_iter().filter(&is_wanted) {
                if session.status.state != SessionState::Deleted {
                    self.living.insert(session.id);
                }
                if self.objects.sessions.insert(session.id) {
                    new.push(session);
                }
            }
        }
        Ok(new)
    }

    /// Adds the workspaces of an owner, with all that is in them.
    async fn workspaces(&mut self, owner: &OwnerId) -> Result<()> {
        let query = WorkspaceQuery::new().with_owner(owner.clone()).with_deleting().with_limit(PAGE_MAX);
        let found: Vec<_> = pages(query, |query| self.storage.workspaces.list(query)).try_collect().await?;
        for page in found {
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!(
                    "nothing more is erased: {damage}; delete that workspace by itself first"
                )));
            }
            for workspace in page.items {
                let query =
                    SessionQuery::new().with_hidden().with_limit(PAGE_MAX).with_workspace(workspace.id);
                self.sessions(query).await?;
                self.objects.workspaces.insert(workspace.id);
            }
        }
        Ok(())
    }
}

impl Person<'_> {
    /// Erases what is planned and what is found. Returns what was kept, and the sessions whose tombstones have the person's name.
    pub(super) async fn erase(&self, plan: &mut Plan) -> Result<(Vec<KeptSession>, Vec<SessionId>)> {
        self.delete(plan).await?;
        let manager = WorkspaceManager::new(self.storage.clone());
        for workspace in &plan.objects.workspaces {
            match manager.delete(*workspace).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                done => drop(done?),
            }
        }
        let mut named = Vec::new();
        for id in &plan.objects.sessions {
            if self.purge(*id, &plan.objects.pseudonym).await? {
                named.push(*id);
            }
        }
        self.update_indexes().await?;
        let kept = self.kept(&plan.objects.sessions).await?;
        self.drop_keys(&plan.objects, &kept).await?;
        Ok((kept, named))
    }

    /// Plans and deletes until no session of the person lives, so that no fork of any can begin.
    async fn delete(&self, plan: &mut Plan) -> Result<()> {
        let manager = WorkspaceManager::new(self.storage.clone());
        loop {
            let (mut objects, living) = find(&self.storage, &*self.stored, self.subject).await?;
            if objects.sessions.is_empty() && objects.workspaces.is_empty() && !plan.is_stored() {
                return Err(nothing(self.subject, self.tenant));
            }
            for id in &living {
                let session = self.stored.load(*id).await?;
                manager.check_free(session, |_| false).await?;
            }
            objects.index = self.index_parts().await?.into_iter().map(|part| part.id).collect();
            if let Some(keys) = self.keys {
                let rows = keys.find(Some(&objects.sessions)).await?;
                objects.rows = rows.into_iter().filter(ErasableRow::is_key).collect();
            }
            objects.pseudonym = pseudonym(self.storage.effects());
            plan.add(objects).await?;
            if living.is_empty() {
                return Ok(());
            }
            // Forks before their parents: the ids of forks are later.
            for id in living.iter().rev() {
                manager.delete_one(*id).await?;
            }
        }
    }

    /// Removes the bytes of a deleted session. Returns whether its tombstone has the person's name.
    async fn purge(&self, id: SessionId, pseudonym: &str) -> Result<bool> {
        let sessions = &*self.storage.sessions;
        let session = match sessions.load(id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(false),
            session => session?,
        };
        let mut purge = Purge::new(id, session.head);
        let person = match self.subject {
            Subject::Owner(owner) => session.owner.as_ref() == Some(owner),
            _ => false,
        };
        // Of one that is kept for a fork the events have the name, and the next erasure finds it by that.
        let is_needed = matches!(needed_by_forks(&*self.stored, &session).await?.by, Some(NeededBy::Fork(_)));
        let is_renamed = person && !is_needed;
        if is_renamed {
            purge = purge.with_pseudonym(as_owner(pseudonym)?);
        }
        sessions.purge(purge).await?;
        Ok(is_renamed && sessions.load(id).await?.owner == session.owner)
    }

    /// Returns which of these deleted sessions have events that a living fork reads.
    pub(super) async fn kept(&self, of: &BTreeSet<SessionId>) -> Result<Vec<KeptSession>> {
        let sessions = &*self.storage.sessions;
        let mut kept = Vec::new();
        for id in of {
            let session = match sessions.load(*id).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => continue,
                session => session?,
            };
            if !has_events(&*self.stored, *id).await? {
                continue;
            }
            match needed_by_forks(&*self.stored, &session).await?.by {
                Some(NeededBy::Fork(fork)) => kept.push(KeptSession::new(*id, fork)),
                _ => {
                    let text =
                        format!("session {id} has events that nobody reads any more; run the erasure again");
                    return Err(Error::unavailable(text));
                }
            }
        }
        Ok(kept)
    }

    /// Drops the keys of all that is erased.
    async fn drop_keys(&self, planned: &Objects, kept: &[KeptSession]) -> Result<()> {
        let Some(keys) = self.keys else { return Ok(()) };
        let is_kept = |id: &SessionId| kept.iter().any(|it| it.session == *id);
        let mut gone: BTreeSet<_> = planned.sessions.iter().copied().filter(|id| !is_kept(id)).collect();
        for id in &planned.index {
            let is_gone = match self.storage.sessions.load(*id).await {
                Err(error) => match error.kind() {
                    ErrorKind::NotFound => true,
                    _ => return Err(error),
                },
                Ok(part) => part.status.state == SessionState::Deleted,
            };
            if is_gone {
                gone.insert(*id);
            }
        }
        for workspace in &planned.workspaces {
            keys.drop_workspace(*workspace).await?;
        }
        let rows = keys.find(Some(&gone)).await?;
        for id in gone {
            keys.drop_session(id, &rows).await?;
        }
        Ok(())
    }

    // --- search indexes ----------------------------------------------------------------------------------------------

    async fn index_parts(&self) -> Result<Vec<SessionSummary>> {
        let query = SessionQuery::new().with_states([SessionState::Archived]).with_limit(PAGE_MAX);
        let found: Vec<_> = pages(query, |query| self.storage.sessions.list(query)).try_collect().await?;
        Ok(found.into_iter().flat_map(|page| page.items).filter(SessionSummary::is_of_search_index).collect())
    }

    /// Makes the search indexes of others forget what was erased. One that cannot be updated is removed.
    async fn update_indexes(&self) -> Result<()> {
        let owners: BTreeSet<_> = self.index_parts().await?.into_iter().map(|part| part.owner).collect();
        for owner in owners {
            let sessions = match &owner {
                Some(owner) => self.storage.for_owner(owner).sessions,
                None => self.storage.sessions.clone(),
            };
            let updated = sessions.update_search_index().await?;
            if !updated.is_complete || updated.leftovers > 0 {
                sessions.remove_search_index().await?;
            }
        }
        Ok(())
    }
}
