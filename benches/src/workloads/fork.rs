//! A fork of a long session, against a new session of its own.

use super::place::Place;
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::compare;

pub(super) async fn fork(place: &Place) -> Outcome<Figure> {
    let (ours, mut floor) = (place.filled_store("ours", 10_000).await?, place.floor()?);
    place.backend.settle().await?;
    let sides = compare(
        &place.meter,
        4,
        async |times| {
            for _ in 0..times {
                ours.store.fork(ours.session.id, None).await?;
            }
            Ok(Vec::new())
        },
        async |times| {
            for _ in 0..times {
                floor.create()?;
            }
            Ok(Vec::new())
        },
    )
    .await?;
    Ok(Figure::timed(place.backend, "fork of 10,000", sides)
        .aim("under 500 us")
        .note("floor: one new record; ours writes the parent's intent first".into()))
}
