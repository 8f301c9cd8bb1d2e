;;; Emacs's own Towers of Hanoi, between two marks (SIGURG to ourselves).  -*- lexical-binding: t -*-
;; As in the paper the interpreter has the library loaded and draws every step into a buffer of 80 columns. The pause
;; between moves is off. ODFORK_RINGS says how many rings.

(require 'hanoi)
(setq hanoi-move-period nil)
(set-frame-size nil 80 40)
(signal-process (emacs-pid) 'SIGURG)
(hanoi (string-to-number (or (getenv "ODFORK_RINGS") "10")))
(signal-process (emacs-pid) 'SIGURG)
