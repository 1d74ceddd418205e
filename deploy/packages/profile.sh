# /etc/profile.d/berth.sh: puts Slurm's look-alikes into PATH where
# /etc/default/berth says so. Their manual pages are found by way of PATH.
if [ -r /etc/default/berth ]; then
	. /etc/default/berth
	case :$PATH: in
	*:/usr/lib/berth/slurm:*) ;;
	*)
		case ${BERTH_SLURM_COMMANDS:-no} in
		first) PATH=/usr/lib/berth/slurm:$PATH ;;
		last) PATH=$PATH:/usr/lib/berth/slurm ;;
		esac
		;;
	esac
fi
