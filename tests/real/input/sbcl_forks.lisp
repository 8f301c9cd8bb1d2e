;; A vector of strings and a hash table, about 80 MB; forked children fold them, change them and collect garbage;
;; the parent goes on consing, collecting and changing between forks.
(require :sb-posix)

(defvar *items* (let ((v (make-array 100000)))
                  (dotimes (i 100000 v)
                    (setf (aref v i) (format nil "~8,'0d item ~d of the vector" i (* i 7919))))))
(defvar *table* (let ((h (make-hash-table)))
                  (dotimes (i 200000 h)
                    (setf (gethash i h) (list i (* i 31))))))

(defun mix (h n) (logand (+ (* h 33) n) #xffffffff))

(defun fold-all ()
  (let ((h 5381))
    (loop for s across *items*
          do (loop for c across (the string s) do (setf h (mix h (char-code c)))))
    (dotimes (i 200000 h)
      (dolist (n (gethash i *table*)) (setf h (mix h n))))))

(defun in-child (work)
  "Runs WORK in a forked child; its number comes back through a pipe."
  (finish-output)
  (multiple-value-bind (r w) (sb-posix:pipe)
    (let ((pid (sb-posix:fork)))
      (when (zerop pid)
        (let ((out (sb-sys:make-fd-stream w :output t :buffering :full)))
          (print (funcall work) out)
          (finish-output out))
        (sb-ext:exit :code 3 :abort t))
      (sb-posix:close w)
      (let ((said (with-open-stream (in (sb-sys:make-fd-stream r :input t)) (read in))))
        (multiple-value-bind (done status) (sb-posix:waitpid pid 0)
          (declare (ignore done))
          (format nil "~a ~a" said (sb-posix:wexitstatus status)))))))

(format t "start ~a~%" (fold-all))
(dotimes (turn 4)
  (format t "turn ~a ~a~%" turn (in-child #'fold-all))
  (format t "spoil ~a~%" (in-child (lambda ()
                                     (loop for i from turn below 100000 by 11
                                           do (setf (aref *items* i) (format nil "spoilt ~a" i)))
                                     (sb-ext:gc :full t)
                                     (fold-all))))
  (loop for i from turn below 200000 by 173
        do (setf (gethash i *table*) (list turn i turn)))
  (loop for i from turn below 100000 by 301
        do (setf (aref *items* i) (make-string 50 :initial-element (code-char (+ 65 turn)))))
  (when (oddp turn) (sb-ext:gc :full t))
  (format t "parent ~a~%" (fold-all)))
(format t "nested ~a~%" (in-child (lambda ()
                                    (setf (aref *items* 0) "child")
                                    (let ((inner (in-child (lambda () (setf (aref *items* 1) "grandchild") (fold-all)))))
                                      (format nil "\"~a and ~a\"" inner (fold-all))))))
(format t "cons ~a~%" (in-child (lambda ()
                                  (let ((n 0))
                                    (dotimes (i 100 n)
                                      (incf n (length (make-array 200000 :initial-element i))))))))
(format t "run-program ~a~%"
        (sb-ext:process-exit-code (sb-ext:run-program "/bin/sh" '("-c" "exit 11"))))
(setf *items* (subseq *items* 0 1000))
(sb-ext:gc :full t)
(format t "fresh zeros ~a~%" (in-child (lambda () (count 0 (make-array 4000000 :element-type '(unsigned-byte 8))))))
(format t "end ~a~%" (fold-all))
(finish-output)
(sb-ext:exit :code 0)
