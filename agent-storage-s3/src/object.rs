//! The seam over `object_store`: each request bounded in time and counted, tried again until it is known what it did.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::{Error, ErrorKind, Result, WriteOutcome};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use futures::future::BoxFuture;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::config::S3Config;
use crate::error::{Fate, failed, fate, is_beyond, late};

/// The pause before the second attempt, and the longest between two. Each is cut short by chance.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a request that was denied is tried again, with credentials that are new by then.
const DENIED_MAX: u32 = 3;

/// How many objects an operation that needs many of them looks at or writes at once.
pub(crate) const AT_ONCE: usize = 16;

/// More bytes than any object has that this store writes: a commit of 64 MiB at most, what it carries of those before
/// it, and the record. What claims to be larger is not read.
const OBJECT_MAX: u64 = 128 << 20;

/// How many requests a store has sent, by their kind. For tests and for bills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// GET, whole or in part.
    pub get: u64,
    /// PUT, with or without a condition.
    pub put: u64,
    /// LIST.
    pub list: u64,
    /// DELETE.
    pub delete: u64,
}

#[derive(Debug, Default)]
struct Counters {
    get: AtomicU64,
    put: AtomicU64,
    list: AtomicU64,
    delete: AtomicU64,
}

/// An object as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    pub(crate) tag: String,
}

/// What a PUT asks of the object that is there.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// Nothing.
    Any,
    /// There must be none.
    Absent,
    /// It must be the one with this tag.
    Is(String),
}

/// The body of an answer; `None` if it has more bytes than `most`, however many it says that it has.
async fn body(found: GetResult, most: u64) -> object_store::Result<Option<Bytes>> {
    if found.range.end.saturating_sub(found.range.start) > most {
        return Ok(None);
    }
    let mut stream = found.into_stream();
    let mut all = stream.try_next().await?.unwrap_or_default();
    // Most answers come in one piece, which is not copied.
    if all.len() as u64 <= most
        && let Some(next) = stream.try_next().await?
    {
        let mut pieces = BytesMut::from(all);
        pieces.extend_from_slice(&next);
        while pieces.len() as u64 <= most
            && let Some(next) = stream.try_next().await?
        {
            pieces.extend_from_slice(&next);
        }
        all = pieces.freeze();
    }
    Ok((all.len() as u64 <= most).then_some(all))
}

/// What came of a PUT with a condition.
#[derive(Debug)]
pub(crate) enum Put {
    /// It is stored, under this tag.
    Stored(String),
    /// The condition did not hold, for this attempt or an earlier one; or does not hold since an earlier one was
    /// stored. What is there now, and whether an attempt was in doubt before.
    Refused { now: Option<Object>, doubt: bool },
}

/// How the server wants a tag in `If-Match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    Quoted,
    Bare,
}

/// Some of the keys below a prefix, in order.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) keys: Vec<String>,
    /// The folders, where it was asked for those.
    pub(crate) folders: Vec<String>,
    pub(crate) next: Option<String>,
}

/// One bucket, through one client.
#[derive(Debug)]
pub(crate) struct Bucket {
    client: AmazonS3,
    pub(crate) effects: Effects,
    deadline: Duration,
    attempt: Duration,
    permits: Semaphore,
    counters: Counters,
    pub(crate) tags: Tags,
}

/// A failed request, and what is known of what it did.
struct Failed {
    fate: Fate,
    error: Error,
}

impl Bucket {
    pub(crate) fn new(config: &S3Config) -> Result<Self> {
        Ok(Self {
            client: config.client()?,
            effects: config.effects.clone(),
            deadline: config.deadline,
            attempt: config.attempt,
            permits: Semaphore::new(config.concurrency),
            counters: Counters::default(),
            tags: Tags::Quoted,
        })
    }

    pub(crate) fn requests(&self) -> Requests {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            get: count(&self.counters.get),
            put: count(&self.counters.put),
            list: count(&self.counters.list),
            delete: count(&self.counters.delete),
        }
    }

    /// When an operation that starts now is to end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// One request, bounded in time and in how many there are at once.
    async fn request<T>(
        &self,
        doing: &str,
        mebibytes: u32,
        until: Instant,
        counter: &AtomicU64,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Failed> {
        let permit = tokio::time::timeout_at(until, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(Failed { fate: Fate::Wrong, error: late(doing) });
        };
        // What is sent when the time is over may be carried out, and nobody would wait to learn of it.
        if Instant::now() >= until {
            return Err(Failed { fate: Fate::Wrong, error: late(doing) });
        }
        counter.fetch_add(1, Ordering::Relaxed);
        let most = (Instant::now() + self.attempt * mebibytes).min(until);
        match tokio::time::timeout_at(most, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(Failed { fate: fate(&error), error: failed(doing, error) }),
            Err(_) => Err(Failed { fate: Fate::Doubt, error: late(doing) }),
        }
    }

    /// Waits before the attempt after the `n`th; whether there is time for it.
    pub(crate) async fn pause(&self, n: u32, until: Instant) -> bool {
        let most = PAUSE.saturating_mul(1 << n.min(10)).min(PAUSE_MAX);
        let share = u32::try_from(self.effects.random_u64() >> 40).unwrap_or(0);
        // Between half of it and all of it.
        let pause = most / 2 + (most / 2) * share / (1 << 24);
        let end = Instant::now() + pause;
        if end >= until {
            return false;
        }
        tokio::time::sleep_until(end).await;
        true
    }

    /// Tries a request that changes nothing, until it succeeds or the time is over. `None` where the object is absent.
    async fn read<'a, T>(
        &self,
        until: Instant,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T, Failed>> + Send,
    ) -> Result<Option<T>> {
        let (mut n, mut denied) = (0, 0);
        loop {
            let failed = match attempt().await {
                Ok(done) => return Ok(Some(done)),
                Err(failed) => failed,
            };
            denied += u32::from(failed.fate == Fate::Denied);
            match failed.fate {
                Fate::Absent => return Ok(None),
                Fate::Wrong => return Err(failed.error),
                Fate::Denied if denied >= DENIED_MAX => return Err(failed.error),
                _ => {}
            }
            if !self.pause(n, until).await {
                return Err(failed.error.timed_out());
            }
            n += 1;
        }
    }

    /// An object, whole.
    pub(crate) async fn get(&self, key: &str, until: Instant) -> Result<Option<Object>> {
        self.get_part(key, None, until).await
    }

    /// A part of an object; less, or nothing and no tag, where the object ends before.
    pub(crate) async fn get_range(
        &self,
        key: &str,
        range: Range<u64>,
        until: Instant,
    ) -> Result<Option<Object>> {
        self.get_part(key, Some(range), until).await
    }

    async fn get_part(&self, key: &str, range: Option<Range<u64>>, until: Instant) -> Result<Option<Object>> {
        let path = Path::from(key);
        // An object may have 64 MiB and more; one that small parts are read of never takes as long.
        let mebibytes = if range.is_some() { 1 } else { 6 };
        self.read(until, || {
            let (path, range) = (path.clone(), range.clone().map(GetRange::Bounded));
            Box::pin(async move {
                let is_part = range.is_some();
                let most = match &range {
                    Some(GetRange::Bounded(range)) => range.end.saturating_sub(range.start),
                    _ => OBJECT_MAX,
                };
                let options = GetOptions { range, ..GetOptions::default() };
                let work = async {
                    // The first of an answer comes soon, however long the rest takes.
                    let found = tokio::time::timeout(self.attempt, self.client.get_opts(&path, options));
                    let found = match found.await.unwrap_or_else(|_| Err(no_answer())) {
                        // It would be so the next time, too.
                        Err(error) if is_part && is_beyond(&error) => {
                            return Ok(Some(Object { bytes: Bytes::new(), tag: String::new() }));
                        }
                        found => found?,
                    };
                    let tag = found.meta.e_tag.clone().unwrap_or_default();
                    Ok(body(found, most).await?.map(|bytes| Object { bytes, tag }))
                };
                let found = self.request("read an object", mebibytes, until, &self.counters.get, work).await?;
                found.ok_or_else(|| Failed {
                    fate: Fate::Wrong,
                    error: Error::new(ErrorKind::Corrupt, format!(
                        "object {key} has more than the {most} bytes that were asked for or can be in it; look at \
                         what answers at the address of the store"
                    )),
                })
            })
        })
        .await
    }

    /// At most `most` keys below `prefix` that come after `after`, or one level of folders where `folders`.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        token: Option<&str>,
        most: usize,
        folders: bool,
        until: Instant,
    ) -> Result<Listed> {
        let found = self.read(until, || {
            let options = PaginatedListOptions {
                offset: after.map(str::to_owned),
                delimiter: folders.then_some("/".into()),
                max_keys: Some(most),
                page_token: token.map(str::to_owned),
                ..PaginatedListOptions::default()
            };
            Box::pin(async move {
                let work = self.client.list_paginated(Some(prefix), options);
                self.request("list objects", 1, until, &self.counters.list, work).await
            })
        });
        let found = found.await?.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "cannot list objects: there is no such bucket; look at the address",
            )
        })?;
        let keys = found.result.objects.into_iter().map(|object| object.location.to_string()).collect();
        let folders = found.result.common_prefixes.into_iter().map(|folder| folder.to_string()).collect();
        Ok(Listed { keys, folders, next: found.page_token })
    }

    /// The first key below `prefix` that comes after `after`.
    pub(crate) async fn first(
        &self,
        prefix: &str,
        after: Option<&str>,
        until: Instant,
    ) -> Result<Option<String>> {
        let found = self.list(prefix, after, None, 1, false, until).await?;
        Ok(found.keys.into_iter().next())
    }

    /// All keys, or all folders, below a prefix.
    pub(crate) async fn list_all(&self, prefix: &str, folders: bool, until: Instant) -> Result<Vec<String>> {
        let (mut all, mut token) = (Vec::new(), None::<String>);
        loop {
            let page = self.list(prefix, None, token.as_deref(), 1000, folders, until).await?;
            all.extend(if folders { page.folders } else { page.keys });
            token = page.next;
            if token.is_none() {
                return Ok(all);
            }
        }
    }

    /// One attempt to put an object.
    async fn send(
        &self,
        key: &str,
        body: Bytes,
        condition: &Condition,
        until: Instant,
    ) -> Result<String, Failed> {
        let mode = match condition {
            Condition::Any => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Is(tag) => {
                let tag = match self.tags {
                    Tags::Quoted => tag.clone(),
                    Tags::Bare => tag.trim_matches('"').to_owned(),
                };
                PutMode::Update(UpdateVersion { e_tag: Some(tag), version: None })
            }
        };
        let mebibytes = 1 + u32::try_from(body.len() >> 20).unwrap_or(u32::MAX >> 8);
        let path = Path::from(key);
        let options = PutOptions { mode, ..PutOptions::default() };
        let work = self.client.put_opts(&path, PutPayload::from_bytes(body), options);
        let done = self.request("write an object", mebibytes, until, &self.counters.put, work).await?;
        Ok(done.e_tag.unwrap_or_default())
    }

    /// Puts an object under a condition, and tries the same again until it is known whether the condition held.
    ///
    /// # Errors
    ///
    /// With [`WriteOutcome::Unknown`] where the time is over and an attempt may have been stored, or may yet be.
    pub(crate) async fn put(
        &self,
        key: &str,
        body: &Bytes,
        condition: &Condition,
        until: Instant,
    ) -> Result<Put> {
        let (mut n, mut denied, mut doubt) = (0, 0, false);
        let outcome = |doubt| if doubt { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
        loop {
            let failed = match self.send(key, body.clone(), condition, until).await {
                Ok(tag) => return Ok(Put::Stored(tag)),
                Err(failed) => failed,
            };
            doubt |= failed.fate == Fate::Doubt;
            denied += u32::from(failed.fate == Fate::Denied);
            let wrong = failed.fate == Fate::Wrong || denied >= DENIED_MAX;
            if wrong {
                return Err(failed.error.with_outcome(outcome(doubt)));
            }
            if self.look_after(failed.fate, condition) {
                let now = self.get(key, until).await.map_err(|error| {
                    // The object that is there may be of an earlier attempt.
                    error.with_outcome(WriteOutcome::Unknown)
                })?;
                // A 409 stored nothing, and says nothing of what is there.
                let stands = match condition {
                    Condition::Absent => now.is_none(),
                    Condition::Is(tag) => now.as_ref().is_some_and(|now| now.tag == *tag),
                    Condition::Any => true,
                };
                if !stands {
                    return Ok(Put::Refused { now, doubt });
                }
            }
            if !self.pause(n, until).await {
                return Err(failed.error.timed_out().with_outcome(outcome(doubt)));
            }
            n += 1;
        }
    }

    /// Whether what is there now tells what came of the attempt.
    fn look_after(&self, fate: Fate, condition: &Condition) -> bool {
        match fate {
            Fate::Refused | Fate::Collided | Fate::Absent => !matches!(condition, Condition::Any),
            _ => false,
        }
    }

    /// Removes an object, if it is there.
    pub(crate) async fn delete(&self, key: &str, until: Instant) -> Result<()> {
        let path = Path::from(key);
        let done = self.read(until, || {
            let path = path.clone();
            Box::pin(async move {
                let one = futures::stream::once(async move { Ok(path) });
                let work = self.client.delete_stream(Box::pin(one)).try_collect::<Vec<_>>();
                self.request("remove an object", 1, until, &self.counters.delete, work).await
            })
        });
        done.await.map(drop)
    }

    /// For the probe: puts an object where the one with this tag is there; whether it did. Says nothing of why not, so
    /// that a tag which the server does not recognise is no reason to try again.
    pub(crate) async fn update(&self, key: &str, body: &Bytes, tag: &str, until: Instant) -> Result<bool> {
        let (condition, mut n) = (Condition::Is(tag.to_owned()), 0);
        loop {
            let failed = match self.send(key, body.clone(), &condition, until).await {
                Ok(_) => return Ok(true),
                Err(failed) => failed,
            };
            if matches!(failed.fate, Fate::Refused | Fate::Absent) {
                // An attempt in doubt may have been stored, or one may have been carried out twice.
                let now = self.get(key, until).await?;
                return Ok(now.is_some_and(|now| now.bytes == *body));
            }
            let wrong = matches!(failed.fate, Fate::Wrong | Fate::Denied);
            if wrong {
                return Err(failed.error);
            }
            if !self.pause(n, until).await {
                return Err(failed.error.timed_out());
            }
            n += 1;
        }
    }
}

/// What the client would say, if it were it that watches the time.
fn no_answer() -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: "no answer in time".into() }
}
