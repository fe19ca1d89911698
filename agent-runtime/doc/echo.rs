// Set-up of the doc examples with agents that repeat what they are sent; they include this file by a hidden line.

#[allow(unused_imports)]
use setup::*;

#[allow(dead_code, unused_imports)]
mod setup {
    include!("common.rs");
}
