package cluster

// MaxNice bounds how far a job steps back or forward, as Slurm does.
const MaxNice = 2147483645

// What Slurm says of an account or a quality of service that a job may not
// have; users know these sentences.
const (
	WordsNoAccount = "Invalid account or account/partition combination specified"
	WordsNoQOS     = "Invalid qos specification"
)

// CheckAccountName reports whether s may name an account, by the rule of
// CheckName.
func CheckAccountName(s string) error { return CheckName("account", s) }

// CheckQOSName reports whether s may name a quality of service, by the rule of
// CheckName.
func CheckQOSName(s string) error { return CheckName("qos", s) }

// checkStanding bounds what says who is charged and who goes first.
func (s *Spec) checkStanding() error {
	if s.Account != "" {
		if err := CheckAccountName(s.Account); err != nil {
			return err
		}
	}
	if s.QOS != "" {
		if err := CheckQOSName(s.QOS); err != nil {
			return err
		}
	}
	if s.Nice > MaxNice || s.Nice < -MaxNice {
		return Errorf(CodeInvalid, "nice: %d is outside -%d to %d", s.Nice, MaxNice, MaxNice)
	}
	return nil
}
