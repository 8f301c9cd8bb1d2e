//! How code of x86-64 calls the kernel: `mov $number, %eax`, and soon after it `syscall`. Pure.

/// The next `0f 05`, 16 bytes at a time.
pub fn next_call(code: &[u8], mut at: usize) -> Option<usize> {
    use core::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    while at + 17 <= code.len() {
        // SAFETY: SSE2 is in every x86-64; 17 bytes are there from `at` on.
        let found = unsafe {
            let (first, second) = (_mm_set1_epi8(0x0f), _mm_set1_epi8(0x05));
            let here = _mm_loadu_si128(code.as_ptr().add(at).cast());
            let next = _mm_loadu_si128(code.as_ptr().add(at + 1).cast());
            let both = _mm_and_si128(_mm_cmpeq_epi8(here, first), _mm_cmpeq_epi8(next, second));
            _mm_movemask_epi8(both)
        };
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize);
        }
        at += 16;
    }
    let rest = code.get(at..)?.windows(2).position(|w| w == [0x0f, 0x05])?;
    Some(at + rest)
}

/// Numbers that instructions in there load into rax.
pub fn numbers(before: &[u8]) -> impl Iterator<Item = i64> + '_ {
    before.windows(5).filter_map(|words| match *words {
        [0xb8 | 0xc0, low, high, 0, 0] => Some(i64::from(u16::from_le_bytes([low, high]))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::code::{unseen, Unseen, BEFORE};

    const MADVISE: [u8; 7] = [0xb8, 28, 0, 0, 0, 0x0f, 0x05];

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes there")]
    fn a_call_is_found_wherever_it_is() {
        for len in 7..120 {
            for at in 0..=len - 7 {
                let mut code = vec![0x90u8; len];
                code[at..at + 7].copy_from_slice(&MADVISE);
                assert_eq!(unseen(&code), Unseen::Gives, "{at} of {len}");
                code[at + 1] = 29;
                assert_eq!(unseen(&code), Unseen::Nothing, "{at} of {len}");
            }
        }
    }

    #[test]
    fn the_number_may_stand_a_little_before() {
        let mut code = vec![0x0fu8; 100];
        code[..5].copy_from_slice(&MADVISE[..5]);
        code[BEFORE + 1] = 0x05;
        assert_eq!(unseen(&code), Unseen::Gives);
        code[BEFORE + 1] = 0x0f;
        code[BEFORE + 2] = 0x05;
        assert_eq!(unseen(&code), Unseen::Nothing);
    }

    #[test]
    fn the_worst_call_is_told() {
        let fork = [0xb8, 57, 0, 0, 0, 0x0f, 0x05];
        let clone3 = [0x48, 0xc7, 0xc0, 0xb3, 0x01, 0, 0, 0x0f, 0x05];
        assert_eq!((unseen(&fork), unseen(&clone3)), (Unseen::Unfit, Unseen::Unfit));
        assert_eq!(unseen(&[&fork[..], &[0x90; 50], &MADVISE].concat()), Unseen::Gives);
        assert_eq!(unseen(&[&MADVISE[..], &[0x90; 50], &fork].concat()), Unseen::Gives);
    }
}
