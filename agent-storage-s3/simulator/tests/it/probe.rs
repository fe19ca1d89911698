//! Probe: a bucket without a feature that the protocol needs is refused at opening, and the error names the feature.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::session::NewSession;
use agent_core::{ErrorKind, SessionStore, Timestamp, WorkspaceId};
use s3_simulator::{Fault, FaultPlan, Quirks, Simulator};

use crate::backend::config;

/// What is ignored is named; nothing is left behind but the probe's own.
#[tokio::test(start_paused = true)]
async fn store_lacking_a_required_feature_is_refused() {
    let quirks = |set: &dyn Fn(&mut Quirks)| {
        let mut quirks = Quirks::default();
        set(&mut quirks);
        quirks
    };
    let bad = [
        (quirks(&|quirks| quirks.ignores_if_none_match = true), "If-None-Match"),
        (quirks(&|quirks| quirks.ignores_if_match = true), "If-Match"),
        (quirks(&|quirks| quirks.stale_reads = Some(Duration::from_secs(60))), "just written"),
        (quirks(&|quirks| quirks.unordered_list = true), "order"),
    ];
    for (quirks, named) in bad {
        let simulator = Simulator::new(1).with_quirks(quirks.clone());
        let error = config(&simulator, "handle").open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported, "{quirks:?}: {error:?}");
        assert!(error.to_string().contains(named), "{quirks:?}: {error}");
        assert!(simulator.keys().iter().all(|key| key.contains("probe")), "{:?}", simulator.keys());
    }
}

/// Stores that differ in what does not matter are all right: bare ETags, 412 for what is missing, small pages.
#[tokio::test(start_paused = true)]
async fn bare_etags_and_small_pages_are_accepted() {
    let quirks = Quirks { wants_bare_etags: true, missing_is_precondition: true, ..Quirks::default() };
    let simulator = Simulator::new(1).with_quirks(quirks);
    let store = config(&simulator, "handle").open().await.unwrap();
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let made = store.commit(Commit::create(&effects, new)).await.unwrap();
    // The same through a second handle, which knows nothing of the first.
    let other = config(&simulator, "other").open().await.unwrap();
    assert_eq!(SessionStore::load(&other, made.session.id).await.unwrap(), made.session);
}

/// No fault makes a good store seem bad, or a bad one good.
#[test]
fn faults_do_not_change_the_probe_result() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..300 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let quirks = Quirks {
                ignores_if_none_match: seed % 3 == 1,
                ignores_if_match: seed % 3 == 2,
                ..Quirks::default()
            };
            let good = seed % 3 == 0;
            let simulator = Simulator::new(seed).with_quirks(quirks);
            // A store that knows no conditions has no reason for a 409.
            let possible = |fault: &Fault| good || *fault != Fault::Conflict;
            let faults: Vec<_> = Fault::ALL.into_iter().filter(possible).collect();
            simulator.set_plan(FaultPlan::hostile(250).with_faults(faults));
            let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
            match config(&simulator, "handle").with_effects(effects).open().await {
                Ok(_) if good => opened += 1,
                Err(error) if *error.kind() == ErrorKind::Unsupported && !good => refused += 1,
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied) => {}
                other => panic!("seed {seed}, good: {good}: {other:?}\n{}", simulator.trace()),
            }
        });
    }
    assert!(opened > 50 && refused > 100, "{opened} opened, {refused} refused");
}

/// A store that is not to be made is opened where one is, and nothing is written elsewhere.
#[tokio::test(start_paused = true)]
async fn missing_store_is_not_created() {
    let simulator = Simulator::new(1);
    let refused = config(&simulator, "handle").with_create(false).open().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::NotFound);
    assert!(refused.to_string().contains("holds no store"), "{refused}");
    assert_eq!(simulator.keys(), Vec::<String>::new());
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let store = config(&simulator, "handle").open().await.unwrap();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    store.commit(Commit::create(&effects, new)).await.unwrap();
    assert!(config(&simulator, "other").with_create(false).open().await.is_ok());
}

/// Everything that is stored, copied to another bucket.
fn copied(from: &Simulator, quirks: Quirks) -> Simulator {
    let to = Simulator::new(2).with_quirks(quirks);
    from.keys().iter().for_each(|key| to.put_object(key, from.object(key).unwrap()));
    to
}

const MARKER: &str = "agents/probe/passed";

/// A marker that came with a copy of the bucket is not believed: by the address, the server's name or the server's time
/// it is another's.
#[tokio::test(start_paused = true)]
async fn copied_marker_is_not_believed() {
    let named = |server| Quirks { server: Some(server), ..Quirks::default() };
    let careless = |server| Quirks { ignores_if_none_match: true, ..named(server) };
    let first = Simulator::new(1).with_quirks(named("careful"));
    config(&first, "handle").open().await.unwrap();
    assert_eq!(first.keys(), [MARKER, "agents/settings"]);
    // The control: a copy that is not told from the original is believed. Nothing else can tell them apart.
    let same = copied(&first, careless("careful"));
    config(&same, "handle").open().await.unwrap();
    assert_eq!(same.counts().put, 0);
    let elsewhere = config(&copied(&first, careless("careful")), "handle");
    let elsewhere = elsewhere.with_option("endpoint", "https://elsewhere.example").unwrap();
    let other_server = config(&copied(&first, careless("careless")), "handle");
    let nameless = copied(&first, Quirks { server: None, ..careless("") });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let late = Simulator::new(2).with_quirks(careless("careful"));
    // The server's clock starts with its first request.
    late.put_object("first", "");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    late.put_object(MARKER, first.object(MARKER).unwrap());
    for (what, config) in [
        ("another address", elsewhere),
        ("another server", other_server),
        ("a server without a name", config(&nameless, "handle")),
        ("a later copy", config(&late, "handle")),
    ] {
        let error = config.open().await.err().unwrap_or_else(|| panic!("{what} was believed"));
        assert_eq!(*error.kind(), ErrorKind::Unsupported, "{what}: {error}");
    }
}

/// A marker that is damaged, of another version or too old is not believed; the probe writes a new one, which is.
#[tokio::test(start_paused = true)]
async fn doubtful_marker_causes_another_probe() {
    let simulator = Simulator::new(1);
    let start = Timestamp::from_micros(1_771_151_400_000_000);
    let open = |at: Timestamp| config(&simulator, "handle").with_effects(Effects::seeded(1, at)).open();
    let costs_a_probe = async |at| {
        let before = simulator.requests();
        drop(open(at).await.unwrap());
        let counts = simulator.counts_since(before);
        assert!(matches!(counts.put, 0 | 6 | 7), "{counts}");
        assert!(counts.put > 0 || counts.total() == 2, "{counts}");
        counts.put > 0
    };
    assert!(costs_a_probe(start).await);
    assert!(!costs_a_probe(start).await);
    let sound = simulator.object(MARKER).unwrap().to_vec();
    let mut doubtful = vec![
        Vec::new(),
        sound[..sound.len() - 1].to_vec(),
        sound.repeat(2),
        vec![b'x'; 10_000],
        [&sound[..], b"x"].concat(),
    ];
    for at in (0..sound.len()).step_by(29) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        doubtful.push(bytes);
    }
    for (from, to) in
        [("\"format\":", "\"format\":9"), ("\"probe\":1", "\"probe\":2"), ("\"probed\",", "\"commit\",")]
    {
        let text = String::from_utf8(sound[9..sound.len() - 1].to_vec()).unwrap();
        assert!(text.contains(from), "{text}");
        let text = text.replacen(from, to, 1);
        doubtful.push(format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes())).into_bytes());
    }
    for bytes in doubtful {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        simulator.put_object(MARKER, bytes);
        assert!(costs_a_probe(start).await, "{shown}");
        assert!(!costs_a_probe(start).await, "{shown}");
    }
    let day = 24 * 3600 * 1_000_000;
    assert!(!costs_a_probe(start.plus_micros(6 * day)).await);
    assert!(costs_a_probe(start.plus_micros(8 * day)).await);
    assert!(!costs_a_probe(start.plus_micros(8 * day)).await);
    assert!(costs_a_probe(start).await, "by a clock that is eight days slow");
}

/// A probe deletes what another one has left that was cut off more than a day ago, and spares one that may be under way.
#[tokio::test(start_paused = true)]
async fn leftovers_of_probes_go_after_a_day() {
    let simulator = Simulator::new(1);
    let left = "agents/probe/0123456789abcdef0123456789abcdef/1/a";
    simulator.put_object(left, "third");
    for (hours, stays) in [(23, true), (2, false)] {
        tokio::time::sleep(Duration::from_secs(hours * 3600)).await;
        simulator.remove_object(MARKER);
        config(&simulator, "handle").open().await.unwrap();
        assert_eq!(simulator.object(left).is_some(), stays, "after {hours} hours more");
        assert!(simulator.object(MARKER).is_some());
    }
}
