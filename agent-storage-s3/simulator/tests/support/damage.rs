//! Damage to what the store keeps, behind its back: shared by the suite on the simulator and on real servers.

use agent_core::{Seq, SessionId};

/// Flips a byte of an event's line, where the object has it; `None` where it does not.
pub(crate) fn flipped(object: &[u8], seq: Seq) -> Option<Vec<u8>> {
    let start = format!("{{\"seq\":{},", seq.get());
    let mut lines: Vec<Vec<u8>> = object.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let line = lines.iter_mut().find(|line| {
        line.get(9) == Some(&b'E') && line.get(11..).is_some_and(|json| json.starts_with(start.as_bytes()))
    })?;
    let at = line.len() - 6;
    line[at] ^= 1;
    Some(lines.concat())
}

/// Where a session's commits lie.
pub(crate) fn slots(session: SessionId) -> String {
    let last = session.as_uuid().as_bytes()[15];
    format!("agents/v7/default/s/{last:02x}/{session}/c/")
}
