//! Settings of a prefix that this version does not know.

use agent_core::ErrorKind;
use s3_simulator::Simulator;

use crate::backend::config;

/// A setting of another format, or that is unknown or damaged, is named.
#[tokio::test(start_paused = true)]
async fn unknown_setting_is_refused() {
    for (body, kind, named) in [
        (r#"H {"format":6,"kind":"settings","watch":"before"}"#, ErrorKind::Unsupported, "format 6"),
        (r#"H {"format":8,"kind":"settings","watch":"before"}"#, ErrorKind::Unsupported, "format 8"),
        (r#"H {"format":7,"kind":"settings","watch":"off"}"#, ErrorKind::Unsupported, "`off`"),
        ("H {", ErrorKind::Corrupt, "agents/settings"),
    ] {
        let simulator = Simulator::new(1);
        simulator.put_object("agents/settings", format!("{:08x} {body}\n", crc32c::crc32c(body.as_bytes())));
        let error = config(&simulator, "handle").open().await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}
