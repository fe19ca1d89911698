//! A new session in one of many workspaces, against one in one of few.

use agent_core::Sessions;
use agent_core::WorkspaceId;
use agent_core::clock::Effects;
use agent_core::session::NewSession;

use super::place::Place;
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::compare;

/// Workspaces of the smaller store.
const FEW: usize = 40;

/// A store with workspaces, each of which has a session.
struct Among {
    store: Sessions,
    effects: Effects,
    workspaces: Vec<WorkspaceId>,
    created: usize,
}

impl Among {
    async fn new(place: &Place, name: &str, count: usize) -> Outcome<Self> {
        let (path, effects) = (place.path(name), Effects::default());
        let workspaces: Vec<_> = (0..count).map(|_| effects.new_workspace_id()).collect();
        let filling = place.backend.open_to_fill(&path).await?;
        for workspace in &workspaces {
            filling.create(NewSession::new(effects.new_session_id(), *workspace)).await?;
        }
        drop(filling);
        Ok(Self { store: place.backend.open(&path).await?, effects, workspaces, created: 0 })
    }

    async fn create(&mut self, times: u32) -> Outcome {
        for _ in 0..times {
            self.created += 1;
            // The same few: the first session of a process in a workspace costs more.
            let workspace = self.workspaces[self.created % FEW];
            let new = NewSession::new(self.effects.new_session_id(), workspace);
            self.store.create(new).await?;
        }
        Ok(())
    }
}

pub(super) async fn create(place: &Place) -> Outcome<Figure> {
    let mut many = Among::new(place, "many", if place.quick { 1_000 } else { 5_000 }).await?;
    let mut few = Among::new(place, "few", FEW).await?;
    place.backend.settle().await?;
    let sides = compare(
        &place.meter,
        10,
        async |times| many.create(times).await.map(|()| Vec::new()),
        async |times| few.create(times).await.map(|()| Vec::new()),
    )
    .await?;
    let name = format!("create among {} workspaces / 40", if place.quick { "1,000" } else { "5,000" });
    Ok(Figure::timed(place.backend, name, sides).aim("at most 1.1"))
}
