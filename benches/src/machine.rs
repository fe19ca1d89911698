//! Describes the machine and the settings of a run, which every figure depends on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::rounds::ROUNDS;

/// Size of each message, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 1024;

/// Machine, compiler and settings of a run.
#[derive(Debug)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    file_system: String,
    disk: String,
    /// Average number of other threads that ran or waited for a processor in the second before.
    load: f64,
    compiler: &'static str,
    profile: &'static str,
    opt_level: &'static str,
}

impl Machine {
    /// Describes this machine, with the disk that contains `folder`. What the system does not tell is "unknown".
    pub(crate) fn new(folder: &Path) -> Self {
        let device = fs::metadata(folder).map_or(0, |metadata| metadata.dev());
        let numbers = format!("{}:{}", device >> 8 & 0xfff, device & 0xff);
        Self {
            cpu: cpu(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            kernel: format!("{} {}", read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")),
            file_system: file_system(&read("/proc/self/mountinfo"), &numbers),
            disk: disk(&numbers),
            load: load(),
            compiler: env!("BENCH_RUSTC"),
            profile: env!("BENCH_PROFILE"),
            opt_level: env!("BENCH_OPT_LEVEL"),
        }
    }

    /// Returns the lines that the output begins with.
    pub(crate) fn text(&self) -> String {
        format!(
            "machine:  {}, {} cores, {}, load {} before\n\
             disk:     {} on {}\n\
             compiler: {}, profile {}, opt-level {}\n\
             settings: {ROUNDS} rounds in turns, messages of {MESSAGE_BYTES} bytes, full durability unless a line says otherwise",
            self.cpu,
            self.cores,
            self.kernel,
            self.load,
            self.file_system,
            self.disk,
            self.compiler,
            self.profile,
            self.opt_level
        )
    }

    /// Returns the same as one JSON object.
    pub(crate) fn json(&self) -> Value {
        json!({
            "machine": {
                "cpu": self.cpu, "cores": self.cores, "kernel": self.kernel,
                "file_system": self.file_system, "disk": self.disk, "load": self.load,
            },
            "compiler": { "rustc": self.compiler, "profile": self.profile, "opt_level": self.opt_level },
            "settings": { "rounds": ROUNDS, "message_bytes": MESSAGE_BYTES, "durability": "full" },
        })
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn known(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

/// Returns how many other threads ran or waited for a processor, on average over a second. The averages of the system go further
/// back, to what was built for this run.
fn load() -> f64 {
    const LOOKS: u32 = 50;
    let look = |_| {
        std::thread::sleep(Duration::from_millis(20));
        // The fourth field is "running/all", and this thread runs (proc_loadavg(5)).
        let text = read("/proc/loadavg");
        let running = text.split(' ').nth(3).and_then(|threads| threads.split('/').next());
        running.and_then(|running| running.parse().ok()).map_or(0, |running: u32| running.saturating_sub(1))
    };
    let sum: u32 = (0..LOOKS).map(look).sum();
    (f64::from(sum) / f64::from(LOOKS) * 100.0).round() / 100.0
}

/// Finds the model of the processor in the content of `/proc/cpuinfo`.
fn cpu(info: &str) -> String {
    let model =
        info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    known(model.map_or("", |(_, model)| model.trim()))
}

/// Finds the type and options of the file system with these device numbers in the content of `/proc/self/mountinfo`.
fn file_system(mounts: &str, numbers: &str) -> String {
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(numbers));
    // The fields after " - " are the type, the device and the options (proc_pid_mountinfo(5)).
    let fields = mount.and_then(|line| line.split_once(" - ")).map(|(_, fields)| fields.split(' '));
    let mut fields = fields.into_iter().flatten();
    let (kind, options) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
    if options.is_empty() { known(kind) } else { format!("{kind} ({options})") }
}

/// Describes the disk with these device numbers: name, kind and size.
fn disk(numbers: &str) -> String {
    let folder = format!("/sys/dev/block/{numbers}");
    let Some(name) =
        fs::canonicalize(&folder).ok().and_then(|path| Some(path.file_name()?.display().to_string()))
    else {
        return known("");
    };
    // A partition has no queue of its own: that of its disk is one folder up.
    let queue = [format!("{folder}/queue"), format!("{folder}/../queue")];
    let rotates =
        queue.iter().map(|queue| read(&format!("{queue}/rotational"))).find(|text| !text.is_empty());
    let kind = match (name.starts_with("vd"), rotates.as_deref()) {
        (true, _) => "virtual disk",
        (_, Some("0")) => "solid state",
        (_, Some("1")) => "rotating",
        _ => "unknown kind",
    };
    let sectors: u64 = read(&format!("{folder}/size")).parse().unwrap_or(0);
    format!("{name}, {kind}, {} GiB", (sectors * 512) >> 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_is_found() {
        assert_eq!(cpu("processor\t: 0\nmodel name\t: A Chip 9\nmodel name\t: A Chip 9"), "A Chip 9");
        assert_eq!(cpu(""), "unknown");
    }

    #[test]
    fn file_system_is_found_by_its_device() {
        let mounts = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                      27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard";
        assert_eq!(file_system(mounts, "254:0"), "ext4 (rw,discard)");
        assert_eq!(file_system(mounts, "1:1"), "unknown");
    }

    #[test]
    fn text_and_json_name_the_same() {
        let machine = Machine::new(&std::env::temp_dir());
        let (text, json) = (machine.text(), machine.json());
        for value in [&json["machine"]["cpu"], &json["machine"]["disk"], &json["compiler"]["rustc"]] {
            assert!(text.contains(value.as_str().unwrap()), "{value}: {text}");
        }
        assert_eq!(json["settings"]["rounds"], ROUNDS);
    }
}
