//! Records the compiler and the profile of the program: a figure means nothing without them.

#![allow(clippy::print_stdout, reason = "a build script speaks to cargo by printing")]

use std::env::var;
use std::process::Command;

fn main() {
    let compiler = var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(compiler).arg("-V").output().map(|output| output.stdout).unwrap_or_default();
    println!("cargo::rustc-env=BENCH_RUSTC={}", String::from_utf8_lossy(&version).trim());
    for (name, from) in [("BENCH_PROFILE", "PROFILE"), ("BENCH_OPT_LEVEL", "OPT_LEVEL")] {
        println!("cargo::rustc-env={name}={}", var(from).unwrap_or_default());
    }
    println!("cargo::rerun-if-changed=build.rs");
}
