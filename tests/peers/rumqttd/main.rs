//! The MQTT broker library rumqttd as a program, for comparisons.
//!
//! usage: rumqttd FILE, or rumqttd --version
#![forbid(unsafe_code)]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1).ok_or("usage: rumqttd FILE")?;
    if argument == "--version" {
        println!("rumqttd {VERSION}");
        return Ok(());
    }
    let config: rumqttd::Config = toml::from_str(&std::fs::read_to_string(argument)?)?;
    rumqttd::Broker::new(config).start()?;
    Ok(())
}

/// The version in Cargo.toml.
const VERSION: &str = "0.20.0";
