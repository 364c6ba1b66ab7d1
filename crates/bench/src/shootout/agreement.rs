//! Whether two runs of a shoot-out agree about the order of the servers.

use super::quantity::{QUANTITIES, is_comparable};
use super::results::{Results, Workload};
use super::statistics::Verdict;

/// All comparisons of two servers that both runs have made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Agreement {
    /// Comparisons that both runs decide in the same way.
    pub(super) same: usize,
    /// Comparisons that the runs decide in different ways, in words.
    pub(super) contradictions: Vec<String>,
    /// Comparisons that one run decides, and the other does not.
    pub(super) decided_once: usize,
    /// Comparisons that neither run decides.
    pub(super) undecided: usize,
}

impl Agreement {
    pub(super) fn of(first: &Results, second: &Results) -> Self {
        let mut agreement = Self::default();
        let pairs = first.workloads.iter().filter_map(|workload| {
            let other = second.workloads.iter().find(|other| other.name == workload.name)?;
            Some((workload, other))
        });
        let names: Vec<&str> = first.present().map(|server| server.name.as_str()).collect();
        for (workload, other) in pairs {
            for (place, one) in names.iter().enumerate() {
                for another in &names[place + 1..] {
                    agreement.add(workload, other, [one, another]);
                }
            }
        }
        agreement
    }

    /// Adds all comparisons of two servers in a workload.
    fn add(&mut self, first: &Workload, second: &Workload, servers: [&str; 2]) {
        for (size, heading) in first.sizes.iter().enumerate() {
            let Some(same_size) = second.sizes.iter().position(|other| other.name == heading.name) else {
                continue;
            };
            for quantity in QUANTITIES.iter().filter(|quantity| is_comparable(heading, quantity)) {
                let verdict = |workload: &Workload, size: usize| {
                    let [one, another] =
                        servers.map(|name| workload.cell(name, size)?.estimate(quantity.measure));
                    Some(one?.against(another?))
                };
                let (Some(earlier), Some(later)) = (verdict(first, size), verdict(second, same_size)) else {
                    continue;
                };
                match [earlier, later].map(|verdict| matches!(verdict, Verdict::Less | Verdict::More)) {
                    [true, true] if earlier == later => self.same += 1,
                    [true, true] => {
                        let name = quantity.name_in(first);
                        let [one, another] = servers;
                        let title = &first.title;
                        self.contradictions.push(format!(
                            "{title}, {}, {name}: {one} has {}, and then {}, than {another}",
                            heading.name,
                            word(earlier),
                            word(later),
                        ));
                    }
                    [false, false] => self.undecided += 1,
                    _ => self.decided_once += 1,
                }
            }
        }
    }

    /// Number of all comparisons.
    pub(super) fn count(&self) -> usize {
        self.same + self.contradictions.len() + self.decided_once + self.undecided
    }

    /// The result in words, a line each.
    pub(super) fn in_words(&self) -> String {
        let Self { same, contradictions, decided_once, undecided } = self;
        let all = self.count();
        let mut text = format!(
            "{all} comparisons of two servers are in both runs.\n\
             Both runs decide {} of them: {same} in the same way, {} in different ways.\n\
             One run decides {decided_once}, and none decides {undecided}: the intervals overlap.\n",
            same + contradictions.len(),
            contradictions.len(),
        );
        contradictions.iter().for_each(|line| {
            text.push_str("- ");
            text.push_str(line);
            text.push_str(".\n");
        });
        text
    }
}

fn word(verdict: Verdict) -> &'static str {
    if verdict == Verdict::More { "more" } else { "less" }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::results;
    use super::*;

    #[test]
    fn a_run_agrees_with_itself_and_not_with_one_in_which_servers_change_places() {
        let run = results();
        let same = Agreement::of(&run, &run);
        let nothing = Results { workloads: Vec::new(), ..results() };
        assert_eq!(Agreement::of(&run, &nothing).count(), 0);
        assert!(same.same > 0 && same.contradictions.is_empty() && same.decided_once == 0, "{same:?}");
        let mut changed = results();
        let names: Vec<String> = changed.present().map(|server| server.name.clone()).collect();
        for cell in changed.workloads.iter_mut().flat_map(|workload| &mut workload.cells) {
            // The figures of the first two servers change places.
            if cell.server == names[0] {
                cell.server.clone_from(&names[1]);
            } else if cell.server == names[1] {
                cell.server.clone_from(&names[0]);
            }
        }
        let differs = Agreement::of(&run, &changed);
        assert!(!differs.contradictions.is_empty(), "{differs:?}");
        assert!(differs.in_words().contains("in different ways"), "{}", differs.in_words());
    }
}
