//! The load tests as a program of their own.

use std::process::ExitCode;

use clap::Parser;
use pondhawk_bench::BenchArgs;

#[derive(Debug, Parser)]
#[command(name = "pondhawk-bench")]
struct Arguments {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> ExitCode {
    pondhawk_bench::run(Arguments::parse().bench, &[]).unwrap_or_else(|error| {
        eprintln!("pondhawk-bench: {error}");
        ExitCode::from(2)
    })
}
