//! How code of aarch64 calls the kernel: `mov x8, #number`, and soon after it `svc`. Pure.

/// The next `svc`, with any number of its own. Instructions lie at addresses that four divides.
pub fn next_call(code: &[u8], at: usize) -> Option<usize> {
    let first = at + code.get(at..)?.as_ptr().align_offset(4);
    let mut words = code.get(first..)?.chunks_exact(4);
    let found = words.position(|word| instruction(word) & 0xffe0_001f == 0xd400_0001)?;
    Some(first + found * 4)
}

/// Numbers that instructions in there load into x8 or w8.
pub fn numbers(before: &[u8]) -> impl Iterator<Item = i64> + '_ {
    before.windows(4).filter_map(|word| {
        let word = instruction(word);
        let loads = word & 0x7fe0_001f == 0x5280_0008;
        loads.then_some(i64::from(word >> 5 & 0xffff))
    })
}

fn instruction(word: &[u8]) -> u32 {
    word.try_into().map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{unseen, Unseen};

    const SVC: u32 = 0xd400_0001;
    const NOP: u32 = 0xd503_201f;

    fn of(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn load(number: i64) -> u32 {
        0xd280_0008 | (number as u32) << 5
    }

    #[test]
    fn a_call_is_found_wherever_it_is() {
        for before in 0..20 {
            let mut code = vec![NOP; before];
            code.extend([load(libc::SYS_madvise), NOP, SVC, NOP]);
            assert_eq!(unseen(&of(&code)), Unseen::Gives);
            code[before] = load(libc::SYS_getpid);
            assert_eq!(unseen(&of(&code)), Unseen::Nothing);
            code[before] = load(libc::SYS_clone) & 0x7fff_ffff;
            assert_eq!(unseen(&of(&code)), Unseen::Unfit);
        }
    }

    #[test]
    fn a_number_far_before_is_not_the_call_s() {
        let mut code = vec![load(libc::SYS_madvise)];
        code.extend([NOP; 10]);
        code.push(SVC);
        assert_eq!(unseen(&of(&code)), Unseen::Nothing);
        assert_eq!(next_call(&of(&code), 1), Some(44));
    }
}
