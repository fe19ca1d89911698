//! One target under libFuzzer: that of `AGENT_FUZZ_TARGET`. Before it begins, its seeds are written into the folder
//! `AGENT_FUZZ_CORPUS`, which is also given to libFuzzer as its corpus.
#![no_main]

use std::sync::OnceLock;

use agent_fuzz::{Target, targets};

static TARGET: OnceLock<Target> = OnceLock::new();

fn begin() {
    let name = std::env::var("AGENT_FUZZ_TARGET").expect("AGENT_FUZZ_TARGET names a target");
    let target = targets().into_iter().find(|target| target.name == name).expect("the target exists");
    let folder = std::path::PathBuf::from(std::env::var_os("AGENT_FUZZ_CORPUS").expect("a folder"));
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    for (n, seed) in (target.seeds)().into_iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{n}")), seed).expect("the folder can be written");
    }
    TARGET.set(target).expect("this runs once");
}

libfuzzer_sys::fuzz_target!(init: begin(), |data: &[u8]| TARGET.get().expect("it has begun").check(data));
