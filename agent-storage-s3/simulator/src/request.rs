//! Request of a client, parsed from HTTP.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH, RANGE};
use http::{Method, request::Parts};
use percent_encoding::percent_decode_str;

use crate::object::Dialect;
use crate::op::Op;

/// The precondition of Google: the generation of the object, 0 for none.
const GENERATION_MATCH: HeaderName = HeaderName::from_static("x-goog-if-generation-match");

/// A request that the bucket knows how to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Get(Get),
    Put {
        key: String,
        body: Bytes,
        condition: Option<Condition>,
    },
    /// Begins an upload in parts.
    Begin {
        key: String,
    },
    Part {
        key: String,
        upload: String,
        number: usize,
        body: Bytes,
    },
    /// Makes an object of the parts: their numbers and ETags, in order.
    Complete {
        key: String,
        upload: String,
        parts: Vec<(usize, String)>,
    },
    /// Removes the parts.
    Abort {
        key: String,
        upload: String,
    },
    Delete {
        key: String,
    },
    DeleteMany {
        keys: Vec<String>,
    },
    List(List),
    /// Something that S3 may know, and the simulator does not.
    Unknown(String),
}

/// What must hold for a PUT to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// `If-None-Match: *`, or generation 0.
    Absent,
    /// `If-Match`, or the generation, as it came.
    Matches(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Get {
    pub(crate) key: String,
    /// HEAD: the headers without the body.
    pub(crate) head: bool,
    pub(crate) range: Option<Range>,
    pub(crate) if_match: Option<String>,
    pub(crate) if_none_match: Option<String>,
}

/// `Range: bytes=…`, inclusive at both ends, as HTTP has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    Bounded(usize, usize),
    From(usize),
    Last(usize),
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => Some(Self::Bounded(first, last)),
            (Ok(first), Err(_)) => Some(Self::From(first)),
            (Err(_), Ok(count)) => Some(Self::Last(count)),
            _ => None,
        }
    }

    /// The part of `size` bytes that is meant; `None` where there is nothing of it.
    pub(crate) fn of(self, size: usize) -> Option<std::ops::Range<usize>> {
        let range = match self {
            Self::Bounded(first, last) => first..size.min(last.saturating_add(1)),
            Self::From(first) => first..size,
            Self::Last(count) => size.saturating_sub(count)..size,
        };
        (range.start < range.end).then_some(range)
    }
}

/// `GET ?list-type=2`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    pub(crate) start_after: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) max_keys: Option<usize>,
}

impl Request {
    /// Understands a request to the bucket named first in the path.
    pub(crate) fn parse(parts: &Parts, body: Bytes, dialect: Dialect) -> Self {
        let unknown = || Self::Unknown(format!("{} {}", parts.method, parts.uri));
        let path = percent_decode_str(parts.uri.path()).decode_utf8_lossy();
        let (_bucket, key) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let query: Vec<_> =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let headers = &parts.headers;
        let key = key.to_owned();
        if dialect == Dialect::Gcs
            && !text(headers, &AUTHORIZATION).is_some_and(|text| text.starts_with("Bearer "))
        {
            return unknown();
        }
        match (&parts.method, key.is_empty(), query.is_empty()) {
            (&Method::GET, true, false) => list(&query).map_or_else(unknown, Self::List),
            (&Method::POST, true, false) if query[0].0 == "delete" && dialect == Dialect::S3 => {
                keys(&body).map_or_else(unknown, |keys| Self::DeleteMany { keys })
            }
            (&Method::GET | &Method::HEAD, false, true) => Self::Get(Get {
                key,
                head: parts.method == Method::HEAD,
                range: text(headers, &RANGE).and_then(|text| Range::parse(&text)),
                if_match: text(headers, &IF_MATCH),
                if_none_match: text(headers, &IF_NONE_MATCH),
            }),
            (&Method::PUT, false, true)
                if !headers.contains_key("x-amz-copy-source")
                    && !headers.contains_key("x-goog-copy-source") =>
            {
                condition(headers, dialect).map_or_else(unknown, |condition| Self::Put {
                    key,
                    body,
                    condition,
                })
            }
            (&Method::DELETE, false, true) => Self::Delete { key },
            (&Method::POST, false, false) if query[0].0 == "uploads" => Self::Begin { key },
            (method, false, false) => in_parts(method, key, &query, body).unwrap_or_else(unknown),
            _ => unknown(),
        }
    }

    pub(crate) const fn op(&self) -> Op {
        match self {
            Self::Get(Get { head: false, .. }) => Op::Get,
            Self::Get(_) => Op::Head,
            Self::Put { condition: None, .. }
            | Self::Begin { .. }
            | Self::Part { .. }
            | Self::Complete { .. } => Op::Put,
            Self::Put { condition: Some(Condition::Absent), .. } => Op::Create,
            Self::Put { condition: Some(Condition::Matches(_)), .. } => Op::Update,
            Self::Delete { .. } | Self::DeleteMany { .. } | Self::Abort { .. } => Op::Delete,
            Self::List(_) => Op::List,
            Self::Unknown(_) => Op::Unknown,
        }
    }

    /// The key, the prefix, or what else says where the request goes.
    pub(crate) fn target(&self) -> String {
        match self {
            Self::Get(Get { key, range: None, .. }) | Self::Put { key, .. } | Self::Delete { key } => {
                key.clone()
            }
            Self::Get(Get { key, range: Some(range), .. }) => format!("{key} {range:?}"),
            Self::Begin { key } => format!("{key} in parts"),
            Self::Part { key, number, .. } => format!("{key} part {number}"),
            Self::Complete { key, .. } => format!("{key} complete"),
            Self::Abort { key, .. } => format!("{key} abort"),
            Self::DeleteMany { keys } => keys.join(" "),
            Self::List(list) => {
                let mut text = format!("{}*", list.prefix);
                for (name, part) in
                    [("by", &list.delimiter), ("after", &list.start_after), ("token", &list.token)]
                {
                    if let Some(part) = part {
                        text += &format!(" {name} {part}");
                    }
                }
                list.max_keys.into_iter().for_each(|max| text += &format!(" max {max}"));
                text
            }
            Self::Unknown(what) => what.clone(),
        }
    }

    pub(crate) const fn body(&self) -> Option<&Bytes> {
        match self {
            Self::Put { body, .. } | Self::Part { body, .. } => Some(body),
            _ => None,
        }
    }

    /// Whether it changes what is stored.
    pub(crate) const fn writes(&self) -> bool {
        !matches!(self, Self::Get(_) | Self::List(_) | Self::Unknown(_))
    }
}

/// The precondition of a PUT; `None` if it is one that the dialect does not know.
fn condition(headers: &HeaderMap, dialect: Dialect) -> Option<Option<Condition>> {
    let etags = (text(headers, &IF_NONE_MATCH), text(headers, &IF_MATCH));
    match (dialect, text(headers, &GENERATION_MATCH), etags) {
        (_, None, (None, None)) => Some(None),
        (Dialect::S3, None, (Some(any), None)) if any == "*" => Some(Some(Condition::Absent)),
        (Dialect::S3, None, (None, Some(etag))) => Some(Some(Condition::Matches(etag))),
        (Dialect::Gcs, Some(generation), (None, None)) if generation == "0" => Some(Some(Condition::Absent)),
        (Dialect::Gcs, Some(generation), (None, None)) => Some(Some(Condition::Matches(generation))),
        _ => None,
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn list(query: &[(String, String)]) -> Option<List> {
    let mut list = List::default();
    let mut second_version = false;
    for (name, value) in query {
        let value = value.clone();
        match name.as_str() {
            "list-type" => second_version = value == "2",
            "prefix" => list.prefix = value,
            "delimiter" => list.delimiter = Some(value),
            "start-after" => list.start_after = Some(value),
            "continuation-token" => list.token = Some(value),
            "max-keys" => list.max_keys = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    second_version.then_some(list)
}

/// What belongs to an upload in parts.
fn in_parts(method: &Method, key: String, query: &[(String, String)], body: Bytes) -> Option<Request> {
    let value = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let (upload, number) = (value("uploadId")?, value("partNumber"));
    match (method, number) {
        (&Method::PUT, Some(number)) => {
            Some(Request::Part { key, upload, number: number.parse().ok()?, body })
        }
        (&Method::POST, None) => Some(Request::Complete { key, upload, parts: parts(&body)? }),
        (&Method::DELETE, None) => Some(Request::Abort { key, upload }),
        _ => None,
    }
}

/// The parts in the body of a CompleteMultipartUpload.
fn parts(body: &[u8]) -> Option<Vec<(usize, String)>> {
    let text = std::str::from_utf8(body).ok()?;
    let part = |part: &str| {
        let value = |name: &str| {
            let (_, rest) = part.split_once(&format!("<{name}>"))?;
            let (value, _) = rest.split_once(&format!("</{name}>"))?;
            Some(quick_xml::escape::unescape(value).ok()?.into_owned())
        };
        Some((value("PartNumber")?.parse().ok()?, value("ETag")?))
    };
    text.split("<Part>").skip(1).map(part).collect()
}

/// The keys in the body of a DeleteObjects.
fn keys(body: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(body).ok()?;
    text.split("<Key>")
        .skip(1)
        .map(|rest| {
            let (key, _) = rest.split_once("</Key>")?;
            Some(quick_xml::escape::unescape(key).ok()?.into_owned())
        })
        .collect()
}
