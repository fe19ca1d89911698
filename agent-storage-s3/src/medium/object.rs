//! Layer over `object_store`: each request has a time limit and is counted, and is retried until its effect is known.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::clock::{Backoff, Effects};
use agent_core::{Error, Result, WriteOutcome};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{
    Extensions, GetOptions, GetRange, ObjectMeta, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use crate::config::S3Config;
use crate::dialect::Dialect;
use crate::error::{Fate, failed, fate, is_beyond, late, no_bucket_to_list};
use crate::layout::settings::Settings;
use crate::medium::client::{self, Client, Connected, ServerName, ServerTime, body};
use crate::medium::requests::{Counters, Requests};

/// Pauses before the second attempt, and before later ones.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
/// Number of attempts after which a denied request fails; later attempts use new credentials.
pub(crate) const DENIED_MAX: u32 = 3;

/// Number of objects that an operation on many objects reads or writes concurrently.
pub(crate) const AT_ONCE: usize = 16;
/// The same for the sessions of a page of a list.
pub(crate) const PAGE_AT_ONCE: usize = 32;
/// Number of keys of a list request.
pub(crate) const KEYS: usize = 1000;
/// Age after which a key of the index or a blob is an orphan if nothing names it. It is a courtesy: whether the object that
/// would name it may still be written is decided by that object.
pub(crate) const ORPHAN_MICROS: i64 = 7 * 24 * 3600 * 1_000_000;

/// Size limit of an object in bytes, more than this store ever writes: a commit of at most 64 MiB, the events of
/// earlier commits that it carries, and the record. An object that claims to be larger is not read.
const OBJECT_MAX: u64 = 128 << 20;

/// Object as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    /// What the server tells versions of the object apart by: the generation in GCS, elsewhere the ETag.
    pub(crate) tag: String,
}

/// Time since an object was last written: the time of the answer that shows it less that of the object, both by the
/// server's clock. This machine's clock takes no part, since it may be wrong by more than any age that matters. Unknown if the
/// answer has no header `Date`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age(Option<i64>);

impl Age {
    pub(crate) const UNKNOWN: Self = Self(None);

    fn new(extensions: &Extensions, modified_micros: i64) -> Self {
        let now = extensions.get::<ServerTime>();
        Self(now.map(|now| now.0.as_micros().saturating_sub(modified_micros)))
    }

    /// Returns whether the object was written more than `micros` microseconds ago; `false` if nobody knows, so that
    /// nothing is deleted by its age.
    pub(crate) fn is_over(self, micros: i64) -> bool {
        self.0.is_some_and(|age| age > micros)
    }
}

/// Object as it was read, with what the server said beside it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) object: Object,
    /// Time at which the object was written, by the server's clock, in seconds since 1970.
    pub(crate) modified: i64,
    pub(crate) age: Age,
    /// Name that the server gives itself.
    pub(crate) server: Option<String>,
}

/// Precondition of a PUT.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// No condition.
    Any,
    /// The object must not exist.
    Absent,
    /// The object must exist with this tag.
    Is(String),
}

/// Result of a PUT with a condition.
#[derive(Debug)]
pub(crate) enum Put {
    /// The object is stored, under this tag.
    Stored(String),
    /// The condition did not hold, for this attempt or an earlier one, or no longer holds because an earlier attempt
    /// was stored. `now` is the current object; `doubt` is whether the effect of an earlier attempt is unknown.
    Refused { now: Option<Object>, doubt: bool },
}

/// Form of a tag that the server expects in `If-Match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tags {
    Quoted,
    Bare,
}

/// Page of the keys under a prefix, in order.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) keys: Vec<String>,
    /// Times since the objects were last written.
    pub(crate) ages: Vec<Age>,
    /// Numbers of bytes of the objects.
    pub(crate) sizes: Vec<u64>,
    /// Folders, if these were requested.
    pub(crate) folders: Vec<String>,
    pub(crate) next: Option<String>,
}

/// Bucket, accessed through one client.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) client: Arc<dyn Client>,
    pub(crate) dialect: Dialect,
    /// Place that the requests go to.
    pub(crate) place: String,
    pub(crate) effects: Effects,
    deadline: Duration,
    attempt: Duration,
    permits: Semaphore,
    pub(crate) counters: Counters,
    pub(crate) tags: Tags,
    /// Settings of the prefix, known once the store is open.
    pub(crate) settings: Settings,
    /// Name that the server gave the version of an object, once it was asked for one.
    pub(crate) version: OnceCell<Option<String>>,
}

/// Failed request, with its known effect.
pub(crate) struct Failed {
    pub(crate) fate: Fate,
    pub(crate) error: Error,
}

impl Bucket {
    pub(crate) fn new(config: &S3Config) -> Result<Self> {
        let Connected { client, place } = client::connect(config)?;
        Ok(Self {
            client,
            dialect: config.dialect,
            place: format!("{}://{} at {place}", config.dialect.scheme(), config.bucket()),
            effects: config.effects.clone(),
            deadline: config.deadline,
            attempt: config.attempt,
            permits: Semaphore::new(config.concurrency),
            counters: Counters::default(),
            tags: Tags::Quoted,
            settings: Settings::default(),
            version: OnceCell::new(),
        })
    }

    pub(crate) fn requests(&self) -> Requests {
        self.counters.read()
    }

    /// Returns the time at which an operation that starts now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Sends one request, within a time limit and the limit on concurrent requests.
    pub(crate) async fn request<T>(
        &self,
        doing: &str,
        mebibytes: u32,
        until: Instant,
        counter: &AtomicU64,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Failed> {
        let permit = tokio::time::timeout_at(until, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(Failed { fate: Fate::Wrong, error: late(doing, &self.place) });
        };
        // A request that is sent when the time is over may be carried out, and no caller would wait for its result.
        if Instant::now() >= until {
            return Err(Failed { fate: Fate::Wrong, error: late(doing, &self.place) });
        }
        counter.fetch_add(1, Ordering::Relaxed);
        let most = (Instant::now() + self.attempt * mebibytes).min(until);
        match tokio::time::timeout_at(most, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(Failed { fate: fate(&error), error: failed(doing, &self.place, &error) }),
            Err(_) => Err(Failed { fate: Fate::Doubt, error: late(doing, &self.place) }),
        }
    }

    /// Waits before the attempt after the `n`th; returns `false` without waiting if there is not enough time.
    pub(crate) async fn pause(&self, n: u32, until: Instant) -> bool {
        let end = Instant::now() + PAUSES.pause(n, &self.effects);
        if end >= until {
            return false;
        }
        tokio::time::sleep_until(end).await;
        true
    }

    /// Retries a request that changes nothing, until it succeeds or the time is over. Returns `None` if the object is
    /// absent.
    pub(crate) async fn read<'a, T>(
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

    /// Returns a whole object.
    pub(crate) async fn get(&self, key: &str, until: Instant) -> Result<Option<Object>> {
        Ok(self.see(key, None, until).await?.map(|seen| seen.object))
    }

    /// Returns a part of an object. The part is shorter, or empty and without a tag, if the object ends before it.
    pub(crate) async fn get_range(
        &self,
        key: &str,
        range: Range<u64>,
        until: Instant,
    ) -> Result<Option<Object>> {
        Ok(self.see(key, Some(range), until).await?.map(|seen| seen.object))
    }

    /// Returns an object, or a part of it, with what the server says beside it.
    pub(crate) async fn see(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        until: Instant,
    ) -> Result<Option<Seen>> {
        let path = Path::from(key);
        // A whole object may have 64 MiB and more; reading a small part never takes as long.
        let length = |range: &Range<u64>| range.end.saturating_sub(range.start) >> 20;
        let mebibytes = range.as_ref().map_or(6, |range| 1 + u32::try_from(length(range)).unwrap_or(5));
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
                    // The first part of an answer arrives soon, however long the rest takes.
                    let found = tokio::time::timeout(self.attempt, self.client.get_opts(&path, options));
                    let found = match found.await.unwrap_or_else(|_| Err(no_answer())) {
                        // A retry would give the same result.
                        Err(error) if is_part && is_beyond(&error) => {
                            let object = Object { bytes: Bytes::new(), tag: String::new() };
                            return Ok(Some(Seen { object, modified: 0, age: Age::UNKNOWN, server: None }));
                        }
                        found => found?,
                    };
                    let tag = self.tag(found.meta.e_tag.clone(), found.meta.version.clone());
                    let modified = found.meta.last_modified.timestamp();
                    let age = Age::new(&found.extensions, found.meta.last_modified.timestamp_micros());
                    let server = found.extensions.get::<ServerName>().map(|server| server.0.clone());
                    let bytes = body(found, most).await?;
                    Ok(bytes.map(|bytes| Seen { object: Object { bytes, tag }, modified, age, server }))
                };
                let found = self.request("read an object", mebibytes, until, &self.counters.get, work).await?;
                found.ok_or_else(|| Failed {
                    fate: Fate::Wrong,
                    error: Error::corrupt(format!(
                        "object {key} has more than the {most} bytes that were asked for or can be in it; look at \
                         what answers at the address of the store"
                    )),
                })
            })
        })
        .await
    }

    /// Returns what the server tells versions of an object apart by.
    fn tag(&self, e_tag: Option<String>, version: Option<String>) -> String {
        let tag = match self.dialect {
            Dialect::S3 | Dialect::Azure => e_tag,
            Dialect::Gcs => version,
        };
        tag.unwrap_or_default()
    }

    /// Returns at most `most` keys under `prefix` that sort after `after`, or one level of folders if `folders` is
    /// true. Only the last page is empty.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        token: Option<&str>,
        most: usize,
        folders: bool,
        until: Instant,
    ) -> Result<Listed> {
        let mut token = token.map(str::to_owned);
        loop {
            let page = self.list_page(prefix, after, token.as_deref(), most, folders, until).await?;
            // Servers may answer with nothing and a token, and Azure does if all that it found is `after` itself.
            if !page.keys.is_empty() || !page.folders.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            token = page.next;
        }
    }

    async fn list_page(
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
        let found = found.await?.ok_or_else(|| no_bucket_to_list(&self.place))?;
        let extensions = &found.result.extensions;
        let of = |object: ObjectMeta| {
            (object.location.to_string(), Age::new(extensions, object.last_modified.timestamp_micros()))
        };
        let sizes = found.result.objects.iter().map(|object| object.size).collect();
        let (keys, ages) = found.result.objects.into_iter().map(of).unzip();
        let folders = found.result.common_prefixes.into_iter().map(|folder| folder.to_string()).collect();
        Ok(Listed { keys, ages, sizes, folders, next: found.page_token })
    }

    /// Returns the first key under `prefix` that sorts after `after`.
    pub(crate) async fn first(
        &self,
        prefix: &str,
        after: Option<&str>,
        until: Instant,
    ) -> Result<Option<String>> {
        // Azure counts `after` itself, and the client leaves it out.
        let most = if self.dialect == Dialect::Azure && after.is_some() { 2 } else { 1 };
        let found = self.list(prefix, after, None, most, false, until).await?;
        Ok(found.keys.into_iter().next())
    }

    /// Returns the pages of the keys, or folders, under a prefix that sort after `after`. If no time limit is given, each
    /// request has its own.
    pub(crate) fn pages<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        folders: bool,
        until: Option<Instant>,
    ) -> BoxStream<'a, Result<Listed>> {
        let pages = stream::try_unfold(Some(None::<String>), move |token| async move {
            let Some(token) = token else { return Ok(None) };
            let until = until.unwrap_or_else(|| self.deadline());
            let mut page = self.list(prefix, after, token.as_deref(), KEYS, folders, until).await?;
            let next = page.next.take().map(Some);
            Ok(Some((page, next)))
        });
        pages.boxed()
    }

    /// Returns all keys, or all folders, under a prefix.
    pub(crate) async fn list_all(&self, prefix: &str, folders: bool, until: Instant) -> Result<Listed> {
        let (mut all, mut pages) = (Listed::default(), self.pages(prefix, None, folders, Some(until)));
        while let Some(page) = pages.try_next().await? {
            all.keys.extend(page.keys);
            all.ages.extend(page.ages);
            all.sizes.extend(page.sizes);
            all.folders.extend(page.folders);
        }
        Ok(all)
    }

    /// Tries once to put an object.
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
                PutMode::Update(match self.dialect {
                    Dialect::S3 | Dialect::Azure => UpdateVersion { e_tag: Some(tag), version: None },
                    Dialect::Gcs => UpdateVersion { e_tag: None, version: Some(tag) },
                })
            }
        };
        let mebibytes = 1 + u32::try_from(body.len() >> 20).unwrap_or(u32::MAX >> 8);
        let path = Path::from(key);
        let options = PutOptions { mode, ..PutOptions::default() };
        let work = self.client.put_opts(&path, PutPayload::from_bytes(body), options);
        let done = self.request("write an object", mebibytes, until, &self.counters.put, work).await?;
        Ok(self.tag(done.e_tag, done.version))
    }

    /// Puts an object under a condition, and retries until it is known whether the condition held.
    ///
    /// # Errors
    ///
    /// With [`WriteOutcome::Unknown`] if the time is over and an attempt may have been stored, or may still be.
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
            if self.has_taken_effect(failed.fate, condition) {
                let now = self.get(key, until).await.map_err(|error| {
                    // The current object may be that of an earlier attempt.
                    error.with_outcome(WriteOutcome::Unknown)
                })?;
                // A 409 stored nothing, and says nothing about the current object.
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

    /// Returns whether the object that exists now shows the effect of the attempt.
    fn has_taken_effect(&self, fate: Fate, condition: &Condition) -> bool {
        match fate {
            Fate::Refused | Fate::Collided | Fate::Absent => !matches!(condition, Condition::Any),
            _ => false,
        }
    }

    /// Removes an object, if it exists.
    pub(crate) async fn delete(&self, key: &str, until: Instant) -> Result<()> {
        let path = Path::from(key);
        let done = self.read(until, || {
            let path = path.clone();
            Box::pin(async move {
                let one = stream::once(async move { Ok(path) });
                let work = self.client.delete_stream(Box::pin(one)).try_collect::<Vec<_>>();
                self.request("remove an object", 1, until, &self.counters.delete, work).await
            })
        });
        done.await.map(drop)
    }

    /// Replaces an object if it has this tag, for the probe; returns whether it did. The reason for a refusal is
    /// ignored, so that a tag which the server does not recognise causes no retry.
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

/// Returns the error that the client would report if it measured the time limit.
fn no_answer() -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: "no answer in time".into() }
}
