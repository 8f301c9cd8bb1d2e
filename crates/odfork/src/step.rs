//! The steps of a job in the helper task.
//!
//! Owns their names, which `ODFORK_FAULT` takes and the statistics report. One byte each, so that a
//! helper that is killed between two instructions leaves a step and not half of one.

/// Where a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Step {
    #[default]
    None,
    /// Making the scratch memory, starting the helper task.
    Helper,
    Clone,
    /// Reasons not to freeze at all; the map of the process; room for copies.
    Fences,
    Pagemap,
    Scan,
    Memory,
    /// Other threads stand still.
    Quiesce,
    /// Backing files, their anchor mappings, the sharing probe.
    Backing,
    Anchor,
    Probe,
    /// Freezing.
    Plan,
    Core,
    Copy,
    Map,
    /// Refreezing.
    Refreeze,
    Remap,
    Punch,
    Thaw,
    /// The program's code is searched.
    Code,
    /// Live memory is mapped shared, or private again.
    Switch,
}

impl Step {
    const ALL: [Step; 21] = [
        Step::None,
        Step::Helper,
        Step::Clone,
        Step::Fences,
        Step::Pagemap,
        Step::Scan,
        Step::Memory,
        Step::Quiesce,
        Step::Backing,
        Step::Anchor,
        Step::Probe,
        Step::Plan,
        Step::Core,
        Step::Copy,
        Step::Map,
        Step::Refreeze,
        Step::Remap,
        Step::Punch,
        Step::Thaw,
        Step::Code,
        Step::Switch,
    ];

    /// The published name.
    pub const fn name(self) -> &'static str {
        match self {
            Step::None => "",
            Step::Helper => "helper",
            Step::Clone => "clone",
            Step::Fences => "fences",
            Step::Pagemap => "pagemap",
            Step::Scan => "survey",
            Step::Memory => "memory",
            Step::Quiesce => "hold",
            Step::Backing => "image",
            Step::Anchor => "seed",
            Step::Probe => "beacon",
            Step::Plan => "plan",
            Step::Core => "core",
            Step::Copy => "copy",
            Step::Map => "map",
            Step::Refreeze => "fold",
            Step::Remap => "remap",
            Step::Punch => "punch",
            Step::Thaw => "thaw",
            Step::Code => "code",
            Step::Switch => "switch",
        }
    }

    /// The step of that name.
    pub fn named(name: &[u8]) -> Option<Step> {
        Self::ALL.into_iter().find(|s| *s != Step::None && s.name().as_bytes() == name)
    }

    /// The step of that number.
    pub fn numbered(number: u8) -> Step {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for (i, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(Step::numbered(i as u8), step);
            assert_eq!(step as usize, i);
            let named = Step::named(step.name().as_bytes());
            assert_eq!(named, (step != Step::None).then_some(step));
        }
        assert_eq!(Step::numbered(200), Step::None);
    }
}
