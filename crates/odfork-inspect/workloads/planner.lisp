;;;; A hierarchical planner: a dog fetches slippers through a house of rooms and doors.
;;;;
;;;; In the spirit of planners with criticality levels (Sacerdoti 1974): every precondition has a criticality. A plan is
;;;; made for the most critical ones first; each level below takes the plan of the level above as a skeleton and puts in
;;;; the steps its own preconditions need. A matcher with rules and backtracking proves what holds; states are lists.
;;;; Run: sbcl --noinform --load planner.lisp --eval '(planner:run 3)' --quit

(defpackage :planner (:use :cl) (:export :run))
(in-package :planner)
(declaim (ftype function achieve-rest try-operators use-operator settle free-p))

;;; Matching: variables are symbols that begin with "?"; bindings are association lists.

(defun variable-p (term)
  (and (symbolp term) (char= (char (symbol-name term) 0) #\?)))

(defun value (term bindings)
  (loop while (variable-p term)
        do (let ((found (assoc term bindings)))
             (if found (setf term (cdr found)) (return))))
  term)

(defun unify (one two bindings)
  "New bindings, or :no."
  (let ((one (value one bindings)) (two (value two bindings)))
    (cond ((eql one two) bindings)
          ((variable-p one) (acons one two bindings))
          ((variable-p two) (acons two one bindings))
          ((and (consp one) (consp two))
           (let ((heads (unify (car one) (car two) bindings)))
             (if (eq heads :no) :no (unify (cdr one) (cdr two) heads))))
          (t :no))))

(defun fill-in (term bindings)
  (if (consp term)
      (cons (fill-in (car term) bindings) (fill-in (cdr term) bindings))
      (let ((known (value term bindings)))
        (if (consp known) (fill-in known bindings) known))))

(defvar *names* 0)

(defun rename (term table)
  "The term with fresh variables; the table is a list whose car holds the renamings."
  (cond ((consp term) (cons (rename (car term) table) (rename (cdr term) table)))
        ((and term (variable-p term))
         (or (cdr (assoc term (car table)))
             (let ((fresh (make-symbol (format nil "~a~d" term (incf *names*)))))
               (push (cons term fresh) (car table))
               fresh)))
        (t term)))

;;; Proving: facts of the state, then rules. The continuation gets the bindings; NIL from it means "go on searching".

(defparameter *rules*
  '(((leads ?door ?from ?to) (door ?door ?from ?to))
    ((leads ?door ?from ?to) (door ?door ?to ?from))))

(defun prove (goals state bindings found)
  (if (null goals)
      (funcall found bindings)
      (destructuring-bind (goal . rest) goals
        (dolist (fact state)
          (let ((new (unify goal fact bindings)))
            (unless (eq new :no)
              (let ((result (prove rest state new found)))
                (when result (return-from prove result))))))
        (dolist (rule *rules*)
          (let* ((fresh (rename rule (list nil)))
                 (new (unify goal (car fresh) bindings)))
            (unless (eq new :no)
              (let ((result (prove (append (cdr fresh) rest) state new found)))
                (when result (return-from prove result)))))))))

(defun holds-p (goal state)
  (prove (list goal) state nil (lambda (bindings) (list bindings))))

;;; Operators: (name parameters preconditions adds deletes); a precondition is (criticality literal).
;;; 4: what nothing can change; 3: who has the slippers; 2: who is where; 1: whether a door is open.

(defparameter *operators*
  '(((walk ?door ?from ?to)
     ((4 (leads ?door ?from ?to)) (2 (at dog ?from)) (1 (open ?door)))
     ((at dog ?to)) ((at dog ?from)))
    ((push-open ?door)
     ((4 (door ?door ?one ?two)) (4 (leads ?door ?here ?there)) (1 (at dog ?here)))
     ((open ?door)) ((shut ?door)))
    ((pick-up ?thing ?room)
     ((4 (thing ?thing)) (3 (lies ?thing ?room)) (2 (at dog ?room)))
     ((has dog ?thing)) ((lies ?thing ?room)))
    ((hand-over ?thing ?person)
     ((4 (sits ?person ?room)) (3 (has dog ?thing)) (2 (at dog ?room)))
     ((has ?person ?thing)) ((has dog ?thing)))))

(defun preconditions (operator level)
  (loop for (criticality literal) in (second operator)
        when (>= criticality level) collect literal))

(defun apply-step (operator state)
  (append (third operator) (set-difference state (fourth operator) :test #'equal)))

;;; Achieving goals at one level: depth-first below a bound, chains of goals without loops.

(defun static-p (literal)
  (member (car literal) '(leads door thing sits)))

(defun achieve (goals state level bound chain found)
  "Calls FOUND with the steps (operators, reversed) and the state after them."
  (achieve-rest goals state level bound chain '()
                (lambda (steps after)
                  ;; A later goal may have undone an earlier one.
                  (and (every (lambda (goal) (holds-p goal after)) goals)
                       (funcall found steps after)))))

(defun achieve-rest (goals state level bound chain steps found)
  (cond ((null goals) (funcall found steps state))
        ((holds-p (first goals) state)
         (achieve-rest (rest goals) state level bound chain steps found))
        ((or (<= bound 0) (member (first goals) chain :test #'equal)) nil)
        (t (try-operators (first goals) state level bound chain
                          (lambda (more after)
                            (achieve-rest (rest goals) after level (- bound (length more)) chain
                                          (append more steps) found))))))

(defun try-operators (goal state level bound chain found)
  (dolist (operator *operators*)
    (let ((fresh (rename operator (list nil))))
      (dolist (add (third fresh))
        (let ((bindings (unify goal add nil)))
          (unless (eq bindings :no)
            (let ((result (use-operator goal (fill-in fresh bindings) state level bound chain found)))
              (when result (return-from try-operators result)))))))))

(defun use-operator (goal operator state level bound chain found)
  (let ((wanted (preconditions operator level)))
    ;; What nothing can change binds the free variables; so may what holds already.
    (prove (remove-if-not #'static-p wanted) state nil
           (lambda (bindings)
             (let ((step (settle (fill-in operator bindings) state)))
               (achieve (remove-if #'static-p (preconditions step level))
                        state level (1- bound) (cons goal chain)
                        (lambda (steps after)
                          (funcall found (cons step steps) (apply-step step after)))))))))

(defun settle (operator state)
  "Binds what is still free by what holds now: where the slippers lie, say."
  (dolist (precondition (second operator) operator)
    (let* ((literal (fill-in (second precondition) nil))
           (known (and (not (static-p literal)) (some #'free-p (cdr literal))
                       (holds-p literal state))))
      (when known
        (return-from settle (settle (fill-in operator (car known)) state))))))

(defun free-p (term)
  (and term (symbolp term) (variable-p term)))

(defun deepen (goals state level found)
  (loop for bound from 0 to 40
        do (let ((result (achieve goals state level bound '() found)))
             (when result (return result)))))

;;; Refinement: the steps of the level above stay, in their order.

(defun refine (skeleton state level)
  (if (null skeleton)
      (list t)
      (let ((step (first skeleton)))
        (deepen (remove-if #'static-p (preconditions step level)) state level
                (lambda (steps after)
                  (let ((rest (refine (rest skeleton) (apply-step step after) level)))
                    (and rest
                         (cons t (append (reverse steps) (list step) (cdr rest))))))))))

(defun plan (goal state)
  (let ((skeleton (list (list '(goal) (list (list 3 goal)) '() '()))))
    (loop for level from 4 downto 1
          do (let ((refined (refine skeleton state level)))
               (unless refined (return nil))
               (setf skeleton (cdr refined))
               (format t "level ~d: ~(~s~)~%" level (mapcar #'first skeleton)))
          finally (return skeleton))))

;;; The world: a house of SIZE times SIZE rooms, doors between neighbours, every third one shut.

(defun room-at (column row)
  (intern (format nil "ROOM-~d-~d" column row) :planner))

(defun house (size)
  (let ((facts '()) (count 0))
    (flet ((door (one two)
             (let ((name (intern (format nil "DOOR-~d" (incf count)) :planner)))
               (push (list 'door name one two) facts)
               (push (list (if (zerop (mod count 3)) 'shut 'open) name) facts))))
      (dotimes (row size)
        (dotimes (column size)
          (when (< (1+ column) size) (door (room-at column row) (room-at (1+ column) row)))
          (when (< (1+ row) size) (door (room-at column row) (room-at column (1+ row)))))))
    (list* '(thing slippers)
           (list 'lies 'slippers (room-at (1- size) (1- size)))
           (list 'sits 'me (room-at 0 0))
           (list 'at 'dog (room-at 0 0))
           (nreverse facts))))

(defun check (steps state goal)
  "Carries the plan out; every precondition must hold when its step comes."
  (dolist (step steps (and (holds-p goal state) t))
    (unless (every (lambda (literal) (holds-p literal state)) (preconditions step 1))
      (return nil))
    (setf state (apply-step step state))))

(defun run (size)
  (let* ((*package* (find-package :planner))
         (state (house size))
         (goal '(has me slippers))
         (steps (plan goal state)))
    (format t "~:[the plan fails~;the plan holds~]: ~d steps~%"
            (and steps (check steps state goal)) (length steps))
    (finish-output)))
