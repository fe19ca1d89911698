//! Checksums of changed inputs: computed again, so that what is read behind them is reached.

/// Text before the checksum at the end of a line or a document.
const OPENS: [&[u8]; 2] = [b",\"crc\":\"", b",\"crc32c\":\""];

/// Writes the checksum over the bytes before it into a text that ends with one. `seed` is that of the text's owner.
pub(crate) fn reseal_json(text: &mut [u8], seed: u32) {
    for open in OPENS {
        let Some(at) = text.len().checked_sub(open.len() + 10) else { continue };
        if text[at..].starts_with(open) && text.ends_with(b"\"}") {
            let sum = format!("{:08x}", crc32c::crc32c_append(seed, &text[..at]));
            text[at + open.len()..][..8].copy_from_slice(sum.as_bytes());
        }
    }
}

/// Writes the checksum in front of each line of an object of a bucket, and the number of its lines into the first.
pub(crate) fn reseal_lines(text: &mut [u8]) {
    for line in text.split_mut(|byte| *byte == b'\n').filter(|line| line.len() > 9) {
        let sum = format!("{:08x}", crc32c::crc32c(&line[9..]));
        line[..8].copy_from_slice(sum.as_bytes());
    }
}

/// Writes the checksum into each header of a tar file, and into its document.
pub(crate) fn reseal_archive(tar: &mut [u8]) {
    let mut at = 0;
    while tar.len() >= at + 512 {
        let header = &mut tar[at..at + 512];
        let digits = std::str::from_utf8(&header[124..135]).unwrap_or_default();
        let size = usize::from_str_radix(digits.trim_matches(['\0', ' ']), 8).unwrap_or(0);
        if header.iter().all(|byte| *byte == 0) {
            return;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{:06o}\0 ", sum & 0o777_777).as_bytes());
        let end = tar.len().min(at + 512 + size);
        if at == 0 && end > 512 && tar[..end].ends_with(b"\n") {
            reseal_json(&mut tar[512..end - 1], 0);
        }
        at = (at + 512 + size).next_multiple_of(512);
    }
}
