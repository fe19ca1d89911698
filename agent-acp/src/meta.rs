//! Extension of the protocol: the member `agent` of `_meta`, an object.

use agent_client_protocol::Result;
use agent_client_protocol::v1::schema::Meta;
use agent_core::DeviceId;
use serde_json::{Value, json};

use crate::fault;

/// Name of our member.
const MEMBER: &str = "agent";

/// Returns `_meta` with our member.
pub(crate) fn meta(ours: &Value) -> Meta {
    [(MEMBER.to_owned(), json!(ours))].into_iter().collect()
}

/// Returns the device that a request names, as `{"agent": {"device": "laptop"}}`.
///
/// # Errors
///
/// An error of the protocol if it is no name of a device.
pub(crate) fn device(meta: Option<&Meta>) -> Result<Option<DeviceId>> {
    let Some(named) = meta.and_then(|meta| meta.get(MEMBER)?.get("device")) else { return Ok(None) };
    let text = named.as_str().ok_or_else(|| {
        fault::invalid(format!(
            "_meta.{MEMBER}.device must be a text, like {{\"{MEMBER}\":{{\"device\":\"laptop\"}}}}"
        ))
    })?;
    device_of(text).map(Some)
}

/// Returns the device with this name.
///
/// # Errors
///
/// An error of the protocol if it is no name of a device.
pub(crate) fn device_of(text: &str) -> Result<DeviceId> {
    text.parse().map_err(|error: agent_core::ParseError| fault::invalid(error.to_string()))
}
