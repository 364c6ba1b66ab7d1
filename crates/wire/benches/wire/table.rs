//! The table of results, and the demands on the results.

use crate::cases::{Case, Kind};
use crate::measure::{Costs, Measured, STEPS};
use crate::ours;

/// Prints one row for each step of each case, and one column for each codec.
pub(crate) fn print(cases: &[Case], measured: &[Measured]) {
    let codecs = codecs(measured);
    println!(
        "Each cell: ns, thousand packets per second (kHz), allocations, bytes allocated; all per packet.\n"
    );
    println!("| packet | step | {} |", codecs.join(" | "));
    println!("|:--|:--{}|", "|--:".repeat(codecs.len()));
    for case in cases {
        for (step, name) in STEPS.iter().enumerate() {
            let cell = |codec: &&str| {
                find(measured, codec, case).map_or("–".into(), |found| show(found.costs[step]))
            };
            let cells: Vec<String> = codecs.iter().map(cell).collect();
            println!("| {} | {name} | {} |", case.name, cells.join(" | "));
        }
    }
    println!();
}

/// Returns one line for each demand that the results do not meet.
pub(crate) fn faults(cases: &[Case], measured: &[Measured]) -> Vec<String> {
    let mut faults = Vec::new();
    for case in cases {
        let Some(own) = find(measured, ours::NAME, case) else { continue };
        for (step, name) in STEPS.iter().enumerate() {
            let costs = own.costs[step];
            if case.packet == Kind::Publish && costs.allocations > 0.0 {
                faults.push(format!("{}, {name}: {} allocations", case.name, costs.allocations));
            }
            for other in codecs(measured).into_iter().filter(|codec| *codec != ours::NAME) {
                let Some(theirs) = find(measured, other, case).map(|found| found.costs[step]) else {
                    continue;
                };
                if costs.ns >= theirs.ns {
                    let (case, ns) = (&case.name, theirs.ns);
                    faults.push(format!("{case}, {name}: {:.1} ns, {other} takes {ns:.1}", costs.ns));
                }
            }
        }
    }
    faults
}

fn show(costs: Costs) -> String {
    let Costs { ns, allocations, bytes } = costs;
    format!("{ns:.1} / {:.0} / {allocations:.0} / {bytes:.0}", 1e6 / ns)
}

fn find<'m>(measured: &'m [Measured], codec: &str, case: &Case) -> Option<&'m Measured> {
    measured.iter().find(|measured| measured.codec == codec && measured.case == case.name)
}

/// The codecs in the order of their first case, with Pondhawk first.
fn codecs(measured: &[Measured]) -> Vec<&str> {
    let mut codecs = Vec::new();
    for found in measured {
        if !codecs.contains(&found.codec.as_str()) {
            codecs.push(&found.codec);
        }
    }
    codecs
}
