//! The objects, and what each request does to them. No time passes here, and nothing goes wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use http::StatusCode;
use md5::{Digest, Md5};

use crate::answer::Answer;
use crate::listing;
use crate::object::{Dialect, Object, Quirks, Versioning};
use crate::request::{Condition, Get, Request};

#[derive(Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) dialect: Dialect,
    pub(crate) quirks: Quirks,
    /// Number of writes so far.
    writes: u64,
    objects: BTreeMap<String, Object>,
    /// Parts of the uploads that have not ended, by the key and the upload.
    uploads: BTreeMap<(String, String), BTreeMap<usize, Bytes>>,
    /// For stale reads: what was there before the last write, and when that was.
    before: BTreeMap<String, (Option<Object>, Duration)>,
}

/// The MD5 of a body, as S3 makes ETags: two equal bodies have equal ETags.
pub(crate) fn md5(body: &[u8]) -> String {
    Md5::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Bucket {
    pub(crate) fn get(&self, key: &str) -> Option<&Bytes> {
        self.objects.get(key).map(|object| &object.body)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.objects.keys()
    }

    pub(crate) fn put(&mut self, key: String, body: Bytes, now: Duration) {
        self.writes += 1;
        // Google's are times in microseconds.
        let generation = (self.dialect == Dialect::Gcs).then_some(1_771_000_000_000_000 + self.writes);
        let etag = format!("\"{}\"", md5(&body));
        let version = self.quirks.versioning.map(|versioning| match versioning {
            Versioning::Enabled => format!("version-{}", self.writes),
            Versioning::Suspended => "null".to_owned(),
        });
        let object = Object { etag, generation, body, version, modified: server_time(now) };
        self.replace(key, Some(object), now);
    }

    pub(crate) fn remove(&mut self, key: &str, now: Duration) {
        self.replace(key.to_owned(), None, now);
    }

    /// Does what the request asks for, at so long after the start.
    pub(crate) fn apply(&mut self, request: Request, now: Duration) -> Answer {
        match request {
            Request::Get(get) => self.read(&get, now),
            Request::Put { key, body, condition } => {
                if let Some(refusal) = condition.and_then(|condition| self.refusal(&key, &condition)) {
                    return refusal;
                }
                self.put(key.clone(), body, now);
                self.objects.get(&key).map_or_else(missing, Answer::stored)
            }
            Request::Begin { key } => {
                self.writes += 1;
                let upload = format!("upload-{}", self.writes);
                let answer = Answer::begun(&upload);
                self.uploads.insert((key, upload), BTreeMap::new());
                answer
            }
            Request::Part { key, upload, number, body } => match self.uploads.get_mut(&(key, upload)) {
                Some(parts) => {
                    let etag = part_etag(&body);
                    parts.insert(number, body);
                    Answer::part(etag)
                }
                None => no_upload(),
            },
            Request::Complete { key, upload, parts } => self.complete(&(key, upload), &parts, now),
            Request::Abort { key, upload } => match self.uploads.remove(&(key, upload)) {
                Some(_) => Answer::done(StatusCode::NO_CONTENT),
                None => no_upload(),
            },
            Request::Delete { key } if self.dialect == Dialect::Gcs && !self.objects.contains_key(&key) => {
                missing()
            }
            Request::Delete { key } => {
                self.remove(&key, now);
                Answer::done(StatusCode::NO_CONTENT)
            }
            Request::DeleteMany { keys } => {
                keys.iter().for_each(|key| self.remove(key, now));
                Answer::deleted(&keys)
            }
            Request::List(list) => Answer::page(&listing::page(&self.objects, &list, &self.quirks)),
            Request::Unknown(_) => Answer::error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        }
    }

    /// Makes an object of the parts of an upload.
    fn complete(&mut self, id: &(String, String), named: &[(usize, String)], now: Duration) -> Answer {
        let Some(parts) = self.uploads.get(id) else { return no_upload() };
        let in_order = named.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let part =
            |(number, etag): &(usize, String)| parts.get(number).filter(|part| part_etag(part) == *etag);
        let found: Vec<_> = named.iter().filter_map(part).collect();
        if named.is_empty() || !in_order || found.len() < named.len() {
            return Answer::error(StatusCode::BAD_REQUEST, "InvalidPart");
        }
        if found[..found.len() - 1].iter().any(|part| part.len() < PART_MIN) {
            return Answer::error(StatusCode::BAD_REQUEST, "EntityTooSmall");
        }
        let body = found.into_iter().flatten().copied().collect::<Vec<u8>>();
        self.uploads.remove(id);
        self.put(id.0.clone(), body.into(), now);
        self.objects.get(&id.0).map_or_else(missing, Answer::completed)
    }

    pub(crate) fn uploads(&self) -> usize {
        self.uploads.len()
    }

    fn replace(&mut self, key: String, object: Option<Object>, now: Duration) {
        let old = match object {
            Some(object) => self.objects.insert(key.clone(), object),
            None => self.objects.remove(&key),
        };
        if self.quirks.stale_reads.is_some() {
            self.before.insert(key, (old, now));
        }
    }

    /// Why a conditional PUT is not done.
    fn refusal(&self, key: &str, condition: &Condition) -> Option<Answer> {
        let failed = || Some(Answer::error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed"));
        match (condition, self.objects.get(key)) {
            (Condition::Absent, Some(_)) if !self.quirks.ignores_if_none_match => failed(),
            (Condition::Matches(_), None) if !self.quirks.ignores_if_match => {
                let is_failed = self.quirks.missing_is_precondition || self.dialect == Dialect::Gcs;
                if is_failed { failed() } else { Some(missing()) }
            }
            (Condition::Matches(wanted), Some(object))
                if !self.quirks.ignores_if_match && !self.is_version(object, wanted) =>
            {
                failed()
            }
            _ => None,
        }
    }

    /// Whether a conditional PUT means this version of the object.
    fn is_version(&self, object: &Object, wanted: &str) -> bool {
        match object.generation {
            Some(generation) => generation.to_string() == wanted,
            None => self.matches(object, wanted),
        }
    }

    fn matches(&self, object: &Object, wanted: &str) -> bool {
        let bare = object.etag.trim_matches('"');
        if self.quirks.wants_bare_etags { bare == wanted } else { bare == wanted.trim_matches('"') }
    }

    fn read(&self, get: &Get, now: Duration) -> Answer {
        let current = self.objects.get(&get.key);
        let object = match (self.before.get(&get.key), self.quirks.stale_reads) {
            (Some((old, written)), Some(stale)) if now < *written + stale => old.as_ref(),
            _ => current,
        };
        let Some(object) = object else { return missing() };
        if get.if_match.as_ref().is_some_and(|wanted| !self.matches(object, wanted)) {
            return Answer::error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
        }
        if get.if_none_match.as_ref().is_some_and(|unwanted| self.matches(object, unwanted)) {
            return Answer::not_modified(object);
        }
        match get.range.map(|range| range.of(object.body.len())) {
            None => Answer::object(object, None, get.head),
            Some(Some(part)) => Answer::object(object, Some(part), get.head),
            Some(None) => Answer::error(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange"),
        }
    }
}

/// Number of bytes that each part of an upload but the last has at least.
const PART_MIN: usize = 5 << 20;

fn part_etag(body: &[u8]) -> String {
    format!("\"{}\"", md5(body))
}

fn no_upload() -> Answer {
    Answer::error(StatusCode::NOT_FOUND, "NoSuchUpload")
}

fn missing() -> Answer {
    Answer::error(StatusCode::NOT_FOUND, "NoSuchKey")
}

/// The server's clock, as it is in the header `Date` of each answer.
pub(crate) fn server_time(now: Duration) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_500) + TimeDelta::from_std(now).unwrap_or_default()
}
