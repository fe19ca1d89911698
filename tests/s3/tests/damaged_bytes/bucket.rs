//! Anything in any object of a bucket: each answer is what it was, or damage is named; nothing panics, and nothing reads
//! on and on.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_admin::salvage::salvage;
use agent_admin::verify::verify;
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::ReadEvents;
use agent_core::{Storage, WorkspaceId};
use agent_storage_s3::S3Config;
use s3_simulator::Simulator;

use crate::answers::{Answers, Verdict};
use crate::arbitrary_input::made_up;
use crate::fixture::{Names, fill};
use crate::{Ordering, PANICS, count_panics, seeded};

/// How many other contents are tried, or as many as `AGENT_STORAGE_DAMAGES` says.
const TRIES: usize = 600;
/// No store looks at a small bucket for so long.
const LONG: Duration = Duration::from_secs(60);

/// A number that stands where another one stood.
const NUMBERS: [&str; 9] = [
    "0",
    "1",
    "-1",
    "7",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551614",
    "18446744073709551615",
    "1e99",
];

async fn open(bucket: &Simulator) -> Storage {
    let credentials = [("access_key_id", "any"), ("secret_access_key", "any"), ("region", "us-east-1")];
    let config = credentials
        .iter()
        .fold(S3Config::new("bucket"), |config, (name, value)| config.with_option(name, value).unwrap())
        .with_http_connector(bucket.connector("damaged"));
    config.open().await.unwrap().into()
}

/// A store in a bucket, and its objects as they should be.
struct Sound {
    bucket: Simulator,
    names: Names,
    objects: BTreeMap<String, Vec<u8>>,
    answers: Answers,
}

impl Sound {
    /// A bit of everything; a session of many windows, and two of one shape with events too long to be carried along.
    async fn make(effects: &Effects) -> Self {
        let bucket = Simulator::new(1);
        let storage = open(&bucket).await;
        let mut names = fill(&storage, effects).await;
        for (commits, size) in [(70, 10), (3, 9000), (3, 9000)] {
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let mut now = storage.sessions.create(new).await.unwrap();
            names.sessions.push(now.id);
            for n in 0..commits {
                // Of the two of one shape no event is the other's.
                let text = format!("{} {n:2} {}", now.id, "x".repeat(size));
                let events = vec![NewEvent::user_message(text)];
                now = storage.sessions.append(now.id, now.head, events).await.unwrap().session;
            }
        }
        let objects = bucket.keys().into_iter().map(|key| {
            let body = bucket.object(&key).unwrap().to_vec();
            (key, body)
        });
        let objects = objects.collect();
        let answers = Answers::of(&open(&bucket).await, &names).await;
        Self { bucket, names, objects, answers }
    }

    /// Puts everything back, and takes away what is new.
    fn restore(&self) {
        for key in self.bucket.keys() {
            match self.objects.get(&key) {
                Some(body) if self.bucket.object(&key).unwrap() == *body => {}
                Some(body) => self.bucket.put_object(&key, body.clone()),
                None => self.bucket.remove_object(&key),
            }
        }
    }

    /// Any key: of any folder, in every other case its first, which is a session's newest commit.
    fn any_key(&self, effects: &Effects) -> &str {
        let mut folders = BTreeMap::<_, Vec<&str>>::new();
        for key in self.objects.keys() {
            let folder = key.rsplit_once('/').map(|(folder, _)| folder);
            folders.entry(folder).or_default().push(key);
        }
        let keys = folders.values().nth(below(effects, folders.len())).unwrap();
        keys[below(effects, 2) * below(effects, keys.len())]
    }

    /// The bodies of all objects, in the order of their keys.
    fn bodies(&self) -> Vec<Vec<u8>> {
        self.objects.values().cloned().collect()
    }
}

fn below(effects: &Effects, end: usize) -> usize {
    (effects.random_u64() % end.max(1) as u64) as usize
}

/// Contents that are none: any bytes, JSON without a checksum, the bytes of another object, a part of the right ones. No
/// line that was not there has a checksum that fits.
fn other(effects: &Effects, own: &[u8], all: &[Vec<u8>], n: usize) -> Vec<u8> {
    let cut = |bytes: &[u8]| bytes[..below(effects, bytes.len())].to_vec();
    match n % 8 {
        0 => (0..below(effects, 400)).map(|_| below(effects, 256) as u8).collect(),
        1 => made_up(effects, std::slice::from_ref(&b"{\"format\":2,\"kind\":\"commit\"}\n".to_vec())),
        2 => Vec::new(),
        3 | 4 => all[below(effects, all.len())].clone(),
        5 => cut(own),
        // At the end of a line.
        6 => {
            let ends: Vec<_> =
                own.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
            own[..ends.get(below(effects, ends.len())).map_or(0, |at| at + 1)].to_vec()
        }
        _ => {
            let mut bytes = own.to_vec();
            for _ in 0..=below(effects, 3) {
                let at = below(effects, bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = below(effects, 256) as u8;
                }
            }
            bytes
        }
    }
}

/// Whatever stands in any object of a bucket (any bytes, any JSON, another object's body, a part of its own),
/// no answer is wrong: it is as before, or damage is named, by a store that is opened then and by one that has read
/// before.
#[tokio::test]
async fn damaged_bucket_objects_give_no_wrong_answer() {
    count_panics();
    let (seed, effects) = seeded();
    let sound = Sound::make(&effects).await;
    let all = sound.bodies();
    let tries = std::env::var("AGENT_STORAGE_DAMAGES").ok().and_then(|reported| reported.parse().ok());
    let (mut same, mut named) = (0, 0);
    for n in 0..tries.unwrap_or(TRIES) {
        let key = sound.any_key(&effects);
        let own = &sound.objects[key];
        let mut bytes = other(&effects, own, &all, n);
        // The bytes of the one that is most alike: of the same place in a session of the same shape.
        if n % 8 == 4 {
            let twins: Vec<_> = all.iter().filter(|body| body.len() == own.len() && *body != own).collect();
            if let Some(twin) = twins.get(below(&effects, twins.len())) {
                bytes = twin.to_vec();
            }
        }
        if bytes == *own {
            continue;
        }
        let context = || format!("AGENT_STORAGE_SEED={seed}, {key}: {:?}", String::from_utf8_lossy(&bytes));
        let storage = open(&sound.bucket).await;
        if n % 16 < 8 {
            drop(Answers::of(&storage, &sound.names).await);
        }
        sound.bucket.put_object(key, bytes.clone());
        let answers = tokio::time::timeout(LONG, Answers::of(&storage, &sound.names)).await;
        let answers = answers.unwrap_or_else(|_| panic!("it reads on and on: {}", context()));
        match answers.judge(&sound.answers) {
            Verdict::Same => same += 1,
            Verdict::Named => named += 1,
            Verdict::Wrong(wrong) => panic!("{}: {wrong}", context()),
        }
        sound.restore();
    }
    eprintln!("proof: {named} objects of a bucket with other contents, which is named");
    eprintln!("proof: {same} objects of a bucket with other contents, which changes no answer");
    assert!(named > 0 && same > 0, "{named} named, {same} as before");
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}

/// A session whose newest commit is damaged is salvaged up to the one before it, into its own workspace.
#[tokio::test]
async fn session_with_a_damaged_head_is_salvaged() {
    let (_, effects) = seeded();
    for body in [Vec::new(), b"garbage".to_vec()] {
        let bucket = Simulator::new(1);
        let storage = open(&bucket).await;
        let place =
            Workspace::new(effects.new_workspace_id(), "Place", effects.new_session_id(), effects.now());
        storage.workspaces.put(place.clone(), Precondition::MustNotExist).await.unwrap();
        let new = NewSession::new(effects.new_session_id(), place.id);
        let mut now = storage.sessions.create(new).await.unwrap();
        for n in 0..120 {
            let messages = vec![NewEvent::user_message(format!("message {n}"))];
            now = storage.sessions.append(now.id, now.head, messages).await.unwrap().session;
        }
        let is_slot = |key: &String| key.contains("/c/") && key.contains(&now.id.to_string());
        // The newest is listed first.
        let newest = bucket.keys().into_iter().find(is_slot).unwrap();
        bucket.put_object(&newest, body);
        let storage = open(&bucket).await;
        assert!(!verify(&storage, |_| {}).await.unwrap().is_sound());
        let salvaged = salvage(&storage, now.id, None).await.unwrap();
        assert_eq!((salvaged.read, salvaged.session.workspace), (120, place.id));
        let log = storage.sessions.read(salvaged.session.id, ReadEvents::last(1)).await.unwrap();
        assert!(format!("{:?}", log.events).contains("message 118"), "{log:?}");
    }
}

/// A line that names where an event lies, and lacks the checksum of that line, is not followed: the event is found in the
/// object that it came with.
#[tokio::test]
async fn locations_without_a_checksum_are_followed() {
    let (_, effects) = seeded();
    let sound = Sound::make(&effects).await;
    let mut changed = 0;
    for (key, body) in &sound.objects {
        let Ok(text) = std::str::from_utf8(body) else { continue };
        let mut older = String::new();
        for line in text.split_inclusive('\n') {
            match line.split_once(",\"crc\":\"").filter(|_| line[8..].starts_with(" R ")) {
                Some((start, _)) => {
                    changed += 1;
                    let text = format!("{}}}", &start[9..]);
                    older += &format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes()));
                }
                None => older += line,
            }
        }
        sound.bucket.put_object(key, older.into_bytes());
    }
    assert!(changed > 4, "{changed}");
    let answers = Answers::of(&open(&sound.bucket).await, &sound.names).await;
    assert!(matches!(answers.judge(&sound.answers), Verdict::Same));
}

/// The object with some of its lines changed, others' among them, each with a checksum that fits.
fn forged(effects: &Effects, own: &[u8], all: &[Vec<u8>]) -> Vec<u8> {
    let lines =
        |bytes: &[u8]| bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut now = lines(own);
    for _ in 0..=below(effects, 3) {
        let at = below(effects, now.len());
        let Some(line) = now.get_mut(at).filter(|line| line.len() > 12) else { continue };
        let mut text = String::from_utf8_lossy(&line[9..line.len() - 1]).into_owned();
        match below(effects, 6) {
            0 => {
                let json = made_up(effects, &[text.as_bytes()[2..].to_vec()]);
                text = format!("{} {}", &text[..1], String::from_utf8_lossy(&json));
            }
            1 => {
                let other = lines(&all[below(effects, all.len())]);
                let place = below(effects, now.len() + 1);
                if !other.is_empty() {
                    now.insert(place, other[below(effects, other.len())].clone());
                }
                continue;
            }
            2 => {
                now.remove(at);
                continue;
            }
            _ => {
                let starts: Vec<_> = text.match_indices(':').map(|(at, _)| at + 1).collect();
                let numbers: Vec<_> = starts
                    .into_iter()
                    .filter(|at| text[*at..].starts_with(|c: char| c.is_ascii_digit()))
                    .collect();
                if let Some(at) = numbers.get(below(effects, numbers.len())) {
                    let end =
                        text[*at..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |end| at + end);
                    text.replace_range(*at..end, NUMBERS[below(effects, NUMBERS.len())]);
                }
            }
        }
        let text = text.replace('\n', " ");
        now[at] = format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes())).into_bytes();
    }
    now.concat()
}

/// Whatever lines with sound checksums stand in any object, they are read or refused, and written on or not; nothing
/// panics, and nothing goes on and on.
#[tokio::test]
async fn forged_bucket_objects_are_read_or_refused() {
    count_panics();
    let (seed, effects) = seeded();
    let sound = Sound::make(&effects).await;
    let all = sound.bodies();
    let tries = std::env::var("AGENT_STORAGE_DAMAGES").ok().and_then(|reported| reported.parse().ok());
    let mut changed = 0;
    for _ in 0..tries.unwrap_or(TRIES) {
        let key = sound.any_key(&effects);
        let bytes = forged(&effects, &sound.objects[key], &all);
        let context = format!("AGENT_STORAGE_SEED={seed}, {key}: {:?}", String::from_utf8_lossy(&bytes));
        sound.bucket.put_object(key, bytes);
        let storage = open(&sound.bucket).await;
        let done = tokio::time::timeout(LONG, read_and_write(&storage, &sound.names, &effects)).await;
        let answers = done.unwrap_or_else(|_| panic!("it goes on and on: {context}"));
        changed += usize::from(!matches!(answers.judge(&sound.answers), Verdict::Same));
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{context}");
        sound.restore();
    }
    assert!(changed > 0);
}

/// Asks everything, then writes to everything, and ignores the results.
async fn read_and_write(storage: &Storage, names: &Names, effects: &Effects) -> Answers {
    let answers = Answers::of(storage, names).await;
    for id in &names.sessions {
        if let Ok(now) = storage.sessions.load(*id).await {
            let commit = Commit::seal(effects, *id, now.head).with_event(NewEvent::user_message("on"));
            let _ = storage.sessions.commit(commit).await;
            let _ = storage.sessions.read(*id, ReadEvents::last(5)).await;
        }
    }
    for id in &names.workspaces {
        let record = Workspace::new(*id, "on", effects.new_session_id(), effects.now());
        let _ = storage.workspaces.put(record, Precondition::MustExist).await;
        let _ = storage.bindings.unbind_workspace(*id).await;
    }
    answers
}
