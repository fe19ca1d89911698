//! Answers of the bucket: status, headers, body, and the XML that the client reads.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, LAST_MODIFIED};
use quick_xml::escape::escape;

use crate::listing::Page;
use crate::object::Object;

/// An answer, before it goes on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(HeaderName, String)>,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn error(status: StatusCode, code: &str) -> Self {
        let body = format!("<Error><Code>{code}</Code><Message>simulated</Message></Error>");
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn done(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn stored(object: &Object) -> Self {
        let mut headers = vec![(ETAG, object.etag.clone()), (CONTENT_LENGTH, "0".to_owned())];
        headers.extend(generation(object).into_iter().chain(version(object)));
        Self { status: StatusCode::OK, headers, body: Bytes::new() }
    }

    /// The upload in parts that was begun.
    pub(crate) fn begun(upload: &str) -> Self {
        let body = format!(
            "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        );
        Self { status: StatusCode::OK, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn part(etag: String) -> Self {
        let headers = vec![(ETAG, etag), (CONTENT_LENGTH, "0".to_owned())];
        Self { status: StatusCode::OK, headers, body: Bytes::new() }
    }

    /// The object that was made of parts.
    pub(crate) fn completed(object: &Object) -> Self {
        let body = format!(
            "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
            escape(object.etag.as_str())
        );
        Self { status: StatusCode::OK, headers: generation(object).into_iter().collect(), body: body.into() }
    }

    pub(crate) fn not_modified(object: &Object) -> Self {
        let headers = vec![(ETAG, object.etag.clone())];
        Self { status: StatusCode::NOT_MODIFIED, headers, body: Bytes::new() }
    }

    /// The object, or that part of it.
    pub(crate) fn object(object: &Object, part: Option<std::ops::Range<usize>>, head: bool) -> Self {
        let size = object.body.len();
        let mut headers = vec![(ETAG, object.etag.clone()), (LAST_MODIFIED, http_date(object.modified))];
        headers.extend(generation(object).into_iter().chain(version(object)));
        let status = if let Some(part) = &part {
            headers.push((CONTENT_RANGE, format!("bytes {}-{}/{size}", part.start, part.end - 1)));
            StatusCode::PARTIAL_CONTENT
        } else {
            StatusCode::OK
        };
        let body = object.body.slice(part.unwrap_or(0..size));
        headers.push((CONTENT_LENGTH, body.len().to_string()));
        Self { status, headers, body: if head { Bytes::new() } else { body } }
    }

    pub(crate) fn page(page: &Page<'_>) -> Self {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult>");
        xml += &format!("<IsTruncated>{}</IsTruncated>", page.next.is_some());
        for (key, object) in &page.contents {
            xml += &format!(
                "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                escape(*key),
                object.modified.format("%Y-%m-%dT%H:%M:%S%.3fZ"),
                escape(object.etag.as_str()),
                object.body.len(),
            );
        }
        for prefix in &page.prefixes {
            xml += &format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escape(prefix.as_str()));
        }
        if let Some(token) = &page.next {
            xml += &format!("<NextContinuationToken>{}</NextContinuationToken>", escape(token.as_str()));
        }
        xml += "</ListBucketResult>";
        Self { status: StatusCode::OK, headers: Vec::new(), body: xml.into() }
    }

    pub(crate) fn deleted(keys: &[String]) -> Self {
        let mut xml = String::from("<DeleteResult>");
        for key in keys {
            xml += &format!("<Deleted><Key>{}</Key></Deleted>", escape(key.as_str()));
        }
        xml += "</DeleteResult>";
        Self { status: StatusCode::OK, headers: Vec::new(), body: xml.into() }
    }
}

/// A time as HTTP writes it, in whole seconds.
pub(crate) fn http_date(time: DateTime<Utc>) -> String {
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The header of a version, if the bucket has versions.
fn version(object: &Object) -> Option<(HeaderName, String)> {
    object.version.clone().map(|version| (HeaderName::from_static("x-amz-version-id"), version))
}

/// The header of a generation, if the object has one.
fn generation(object: &Object) -> Option<(HeaderName, String)> {
    object.generation.map(|generation| (HeaderName::from_static("x-goog-generation"), generation.to_string()))
}
