//! Devices and their workspaces, among many.

use agent_core::commit::Precondition;
use agent_core::{BindingStore, DeviceId, WorkspaceId};

use super::place::Place;
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::{alone, compare};

/// Number of devices that are bound before anything is measured.
const DEVICES: u32 = 100_000;

fn device(number: u32) -> Outcome<DeviceId> {
    Ok(format!("device-{number}").parse()?)
}

async fn bind(store: &dyn BindingStore, number: u32) -> Outcome {
    store.bind(&device(number)?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    Ok(())
}

/// Finding the workspace of a device, and binding one more.
pub(super) async fn bindings(place: &Place) -> Outcome<Vec<Figure>> {
    let path = place.path("bindings");
    let filling = place.backend.open_storage(&path, true).await?.bindings;
    for number in 0..DEVICES {
        bind(&*filling, number).await?;
    }
    drop(filling);
    place.backend.settle().await?;
    let store = place.backend.open_storage(&path, false).await?.bindings;
    let mut next = 0;
    let resolved = alone(&place.meter, 50, async |times| {
        for _ in 0..times {
            next = (next + 7919) % DEVICES;
            assert!(store.resolve(&device(next)?).await?.is_some());
        }
        Ok(Vec::new())
    })
    .await?;
    let (mut new, mut floor) = (DEVICES, place.floor()?);
    let bound = compare(
        &place.meter,
        20,
        async |times| {
            for _ in 0..times {
                bind(&*store, new).await?;
                new += 1;
            }
            Ok(Vec::new())
        },
        async |times| {
            for _ in 0..times {
                floor.write(1)?;
            }
            Ok(Vec::new())
        },
    )
    .await?;
    let measured = crate::report::Measured::Time { ours: resolved, floor: None };
    Ok(vec![
        Figure::new(place.backend, "resolve among 100,000 devices", measured).aim("under 100 us"),
        Figure::timed(place.backend, "bind among 100,000 devices", bound)
            .aim("under 1 ms")
            .note("floor: a message is appended".to_owned()),
    ])
}
